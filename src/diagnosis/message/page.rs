//! Page: what `explain` printed, pasted back.
//!
//! Asked by `message` before any anchor is looked for: such a page quotes the message it judged, and
//! what it says of it is better than its cut quotation. Reads the verdict and who spoke, not the figures.

use crate::diagnosis::message::{Dialect, Reading, without_colours};
use crate::diagnosis::verdict::{Class, Finding, Judgement};

/// The page's verdict; nothing where the text is no such page.
pub(crate) fn read(text: &str) -> Option<Reading> {
    let text = without_colours(text);
    let mut lines = text.lines().skip_while(|line| line.trim().is_empty());
    let head = lines.next()?.trim_end();
    let (_, about) = head.rsplit_once(": ")?;
    let of_recording = about.ends_with(" events") && about.contains(", ");
    if !of_recording && !Dialect::ALL.iter().any(|dialect| dialect.name() == about) {
        return None;
    }
    let (class, first, rest) = verdict(&mut lines)?;
    let mut sentence = first.to_string();
    for line in
        rest.iter().take_while(|line| line.starts_with("  ") && !line.starts_with("  also "))
    {
        sentence.push(' ');
        sentence.push_str(line.trim());
    }
    let sentence = sentence.trim_end().trim_end_matches('.').to_string();
    let mut judgement =
        Judgement { findings: vec![Finding::new(class, 0, sentence)], ..Judgement::default() };
    judgement.warn("this is a page that was explained before; the figures stand in it");
    Some(Reading { dialect: Dialect::Page, quote: head.to_string(), messages: 1, judgement })
}

/// The class, its sentence as far as its line goes, and the lines that follow.
fn verdict<'a>(
    lines: &mut impl Iterator<Item = &'a str>,
) -> Option<(Class, &'a str, Vec<&'a str>)> {
    let (class, first) = lines.find_map(|line| {
        let (word, rest) = line.split_once(": ")?;
        Some((Class::ALL.into_iter().find(|class| class.name() == word)?, rest))
    })?;
    Some((class, first, lines.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_again_what_it_said() {
        let page = "stdin: pytorch-message\n  > CUDA out of memory. Tried to allocate 1.00 GiB...\n\n\
                    fragmentation: 3.69 GiB are cached for 1.00 GiB, yet in no\n  one piece.\n  also \
                    hidden-consumer: 1.00 GiB.\n\nevidence\n  requested  1.00 GiB\n";
        let reading = read(page).unwrap();
        assert_eq!(
            (reading.dialect, reading.judgement.class()),
            (Dialect::Page, Class::Fragmentation)
        );
        let sentence = "3.69 GiB are cached for 1.00 GiB, yet in no one piece";
        assert_eq!(reading.judgement.verdict(), sentence);
        assert!(read("a.csv: csv, 12 events\n\nthrash: no request fails.\n").is_some());
        for other in
            ["", "job 7: 12 events\nall is well", "error: x\nfragmentation: y", "x: rmm-message\n"]
        {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
