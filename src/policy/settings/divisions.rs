//! Divisions: the rounding table between its text and its sixteen entries.
//!
//! Source of the rules: PyTorch. A list's first entry also rules every smaller size, sizes between
//! two entries that are not named stay off, and `>` rules everything above the entry before it.

use alloc::{format, string::String};
use core::fmt::Write as _;

use super::{
    Place, SettingsError,
    keys::Kind,
    lexer::Token,
    value::{too_large, whole},
};
use crate::policy::size::DIVISION_ENTRIES;

type Table = [u32; DIVISION_ENTRIES];

/// One number for all sizes.
pub(super) fn from_word(word: &Token) -> Result<Table, SettingsError> {
    steps(word, &Kind::Divisions.expected()).map(|steps| [steps; DIVISION_ENTRIES])
}

/// `[256:1,512:2,>:8]`.
pub(super) fn from_list(pairs: &[(Token, Token)]) -> Result<Table, SettingsError> {
    let mut table = [0; DIVISION_ENTRIES];
    let mut last = None;
    for (size, count) in pairs {
        let expected = format!("0 or a power of two, found {}", super::error::Clipped(&count.text));
        let steps = steps(count, &expected)?;
        if size.is(">") {
            // Alone it leaves entry 0 off, as PyTorch does.
            table[last.unwrap_or(0) + 1..].fill(steps);
            continue;
        }
        let index = index(size)?;
        if last.is_none() {
            table[..index].fill(steps);
        }
        table[index] = steps;
        last = Some(index);
    }
    Ok(table)
}

fn steps(word: &Token, expected: &str) -> Result<u32, SettingsError> {
    match whole(word)? {
        Some(steps) if steps == 0 || steps.is_power_of_two() => {
            u32::try_from(steps).map_err(|_| too_large().at(Place::Byte(word.at)))
        }
        _ => Err(SettingsError::expected(expected).at(Place::Byte(word.at))),
    }
}

/// The entry of a size in MiB; sizes above the table share its last entry.
fn index(size: &Token) -> Result<usize, SettingsError> {
    match whole(size)? {
        Some(mib) if mib.is_power_of_two() => Ok((mib.ilog2() as usize).min(DIVISION_ENTRIES - 1)),
        _ => {
            let found = super::error::Clipped(&size.text);
            let expected = format!("a power of two of MiB or >, found {found}");
            Err(SettingsError::expected(&expected).at(Place::Byte(size.at)))
        }
    }
}

/// The shortest text that reads back as this table.
pub(super) fn to_text(table: &Table) -> String {
    let first = table[0];
    let Some(change) = table.iter().position(|&steps| steps != first) else {
        return format!("{first}");
    };
    let top = table[DIVISION_ENTRIES - 1];
    let tail = table.iter().rposition(|&steps| steps != top).map_or(0, |index| index + 1);
    let mut text = String::from("[");
    for (index, steps) in table.iter().enumerate().take(tail).skip(change - 1) {
        if *steps != 0 || index + 1 == change || index + 1 == tail {
            let _ = write!(text, "{}:{steps},", 1u64 << index);
        }
    }
    let _ = write!(text, ">:{top}]");
    text
}

#[cfg(test)]
mod tests {
    use super::super::{Key, Value, parse};
    use super::*;

    fn table(text: &str) -> Table {
        let said = parse(&format!("roundup_power2_divisions:{text}")).unwrap();
        match said.get(Key::RoundupPower2Divisions).unwrap().value {
            Value::Divisions(table) => table,
            _ => unreachable!(),
        }
    }

    #[test]
    fn lists_fill_as_pytorch_fills() {
        assert_eq!(table("4"), [4; 16]);
        assert_eq!(
            table("[64:1,128:2,256:4,>:8]"),
            [1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8, 8, 8]
        );
        assert_eq!(
            table("[128:8,256:16,512:1,2048:8,>:2]"),
            [8, 8, 8, 8, 8, 8, 8, 8, 16, 1, 0, 8, 2, 2, 2, 2],
            "the gap at 1024 stays off"
        );
        assert_eq!(table("[64:4]"), [4, 4, 4, 4, 4, 4, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(table("[65536:2,>:4]"), [2; 16], "above the table: its last entry");
        assert_eq!(table("[]"), [0; 16]);
        assert_eq!(table("[>:8]")[..2], [0, 8]);
    }

    #[test]
    fn text_of_a_table_reads_back_as_that_table() {
        assert_eq!(to_text(&table("[64:1,128:2,256:4,>:8]")), "[64:1,128:2,256:4,>:8]");
        assert_eq!(to_text(&[0; 16]), "0");
        let mut seed = 7u64;
        for _ in 0..2000 {
            let any: Table = core::array::from_fn(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                [0, 0, 1, 2, 8][(seed >> 33) as usize % 5]
            });
            assert_eq!(table(&to_text(&any)), any, "{}", to_text(&any));
        }
    }
}
