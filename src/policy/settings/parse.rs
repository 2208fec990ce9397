//! Parse: a settings text to what it says, in PyTorch's grammar.
//!
//! `key:value,key:[a:b,c:d]`. Only what stands in the text is judged here; whether a value agrees
//! with the policy that it meets is `apply`'s question.

use alloc::{format, string::String, vec::Vec};

use super::{
    Concern, Key, Place, SettingsError, Value, Warning,
    keys::nearest,
    lexer::{Token, tokens},
    value,
};

/// One setting as it was written and understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Which setting.
    pub key: Key,
    /// The value as written, without whitespace.
    pub text: String,
    /// The value as understood.
    pub value: Value,
    /// Where the value starts; `None`: it came from a call.
    pub place: Option<Place>,
}

/// What a text says: each setting once, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    settings: Vec<Setting>,
    warnings: Vec<Warning>,
}

impl Said {
    /// Every setting that was said.
    #[must_use]
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// What the text repeats or what was not read in it.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The setting of that key, if it was said.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.key == key)
    }

    /// Says one setting by hand, its value spelled as in a text.
    ///
    /// # Errors
    /// A value that the setting does not take.
    pub fn set(
        &mut self,
        key: Key,
        value: &str,
        place: Option<Place>,
    ) -> Result<(), SettingsError> {
        let placed = |mut error: SettingsError| {
            error.place = place;
            error.of(key).value(value)
        };
        let raw = alone(value, key.name()).map_err(placed)?;
        let text = raw.text();
        let value = value::read(key.kind(), &raw).map_err(placed)?;
        self.push(Setting { key, text, value, place });
        Ok(())
    }

    /// Adds a setting; the last one of a key counts.
    fn push(&mut self, setting: Setting) {
        if let Some(index) = self.settings.iter().position(|old| old.key == setting.key) {
            let old = self.settings.remove(index);
            self.warn(
                setting.key.name(),
                Concern::Duplicate,
                format!("given twice: {} counts, {} does not", setting.text, old.text),
            );
        }
        self.settings.push(setting);
    }

    pub(super) fn warn(&mut self, key: &str, concern: Concern, text: String) {
        self.warnings.push(Warning { key: key.into(), concern, text });
    }
}

/// Which keys a text may use, and what an unknown one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// PyTorch's keys only.
    PyTorch,
    /// Ours as well.
    Own,
    /// PyTorch's, as some release accepted them: an unknown key is a warning.
    Recorded,
}

/// A text in PyTorch's grammar with PyTorch's keys (`PYTORCH_CUDA_ALLOC_CONF`). O(length).
///
/// # Errors
/// The first setting that is unknown or whose value cannot be meant, with its place.
pub fn parse(text: &str) -> Result<Said, SettingsError> {
    parse_as(text, Dialect::PyTorch)
}

/// A text in the same grammar that may use this project's keys too.
///
/// # Errors
/// As [`parse`].
pub fn parse_own(text: &str) -> Result<Said, SettingsError> {
    parse_as(text, Dialect::Own)
}

pub(super) fn parse_as(text: &str, dialect: Dialect) -> Result<Said, SettingsError> {
    let mut cursor = Cursor { tokens: tokens(text), next: 0, end: text.len() };
    let mut said = Said::default();
    while let Some(name) = cursor.take() {
        if name.is_mark() {
            let error = SettingsError::new(format!("expected a setting, found '{}'", name.text));
            return Err(error.at(Place::Byte(name.at)));
        }
        cursor.mark(":", &name.text)?;
        let raw = cursor.value(&name.text)?;
        match key(&name.text, dialect) {
            Ok(key) => said.push(understand(key, &raw)?),
            Err(problem) if dialect == Dialect::Recorded => {
                said.warn(&name.text, Concern::Ignored, format!("not read: {}", problem.problem));
            }
            Err(problem) => return Err(problem.at(Place::Byte(name.at))),
        }
        if cursor.tokens.get(cursor.next).is_some() {
            cursor.mark(",", &name.text)?;
        }
    }
    Ok(said)
}

/// The key of that name, or what is wrong with the name.
pub(super) fn key(name: &str, dialect: Dialect) -> Result<Key, SettingsError> {
    let allowed = |key: &Key| dialect == Dialect::Own || key.is_pytorch();
    match Key::named(name) {
        Some(key) if allowed(&key) => Ok(key),
        Some(_) => Err(SettingsError::new(
            "is not a setting of PyTorch; it may stand in a settings file or after blockyard:",
        )
        .key(name)),
        None => {
            let names = Key::ALL.into_iter().filter(allowed).map(Key::name);
            let hint = nearest(name, names)
                .map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
            Err(SettingsError::new(format!("unknown setting{hint}")).key(name))
        }
    }
}

/// A value of a text, read for its key.
fn understand(key: Key, raw: &Raw) -> Result<Setting, SettingsError> {
    let text = raw.text();
    let place = Place::Byte(raw.at());
    let value =
        value::read(key.kind(), raw).map_err(|error| error.of(key).value(&text).at(place))?;
    Ok(Setting { key, text, value, place: Some(place) })
}

/// A value before its kind is known.
#[derive(Clone, Debug)]
pub(super) enum Raw {
    /// One word.
    Word(Token),
    /// Pairs in brackets; `at` is the bracket's place.
    List { at: usize, pairs: Vec<(Token, Token)> },
}

impl Raw {
    const fn at(&self) -> usize {
        match self {
            Self::Word(word) => word.at,
            Self::List { at, .. } => *at,
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Word(word) => word.text.clone(),
            Self::List { pairs, .. } => {
                let pairs: Vec<_> =
                    pairs.iter().map(|(a, b)| format!("{}:{}", a.text, b.text)).collect();
                format!("[{}]", pairs.join(","))
            }
        }
    }
}

/// A value that stands alone, as in a file.
fn alone(text: &str, key: &str) -> Result<Raw, SettingsError> {
    let mut cursor = Cursor { tokens: tokens(text), next: 0, end: text.len() };
    let raw = cursor.value(key)?;
    match cursor.take() {
        None => Ok(raw),
        more => Err(cursor.wanted("nothing after the value", more.as_ref(), key)),
    }
}

/// A walk over the tokens.
struct Cursor {
    tokens: Vec<Token>,
    next: usize,
    end: usize,
}

impl Cursor {
    fn take(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.next).cloned();
        self.next += usize::from(token.is_some());
        token
    }

    fn peek_is(&self, mark: &str) -> bool {
        self.tokens.get(self.next).is_some_and(|token| token.is(mark))
    }

    /// What was wanted and what stands there instead.
    fn wanted(&self, what: &str, found: Option<&Token>, key: &str) -> SettingsError {
        let (seen, at) = match found {
            Some(token) => (format!("'{}'", super::error::Clipped(&token.text)), token.at),
            None => ("the end".into(), self.end),
        };
        SettingsError::new(format!("expected {what}, found {seen}")).key(key).at(Place::Byte(at))
    }

    fn mark(&mut self, mark: &str, key: &str) -> Result<(), SettingsError> {
        match self.take() {
            Some(token) if token.is(mark) => Ok(()),
            other => Err(self.wanted(&format!("'{mark}'"), other.as_ref(), key)),
        }
    }

    fn word(&mut self, key: &str) -> Result<Token, SettingsError> {
        match self.take() {
            Some(token) if !token.is_mark() => Ok(token),
            other => Err(self.wanted("a value", other.as_ref(), key)),
        }
    }

    fn value(&mut self, key: &str) -> Result<Raw, SettingsError> {
        if !self.peek_is("[") {
            return self.word(key).map(Raw::Word);
        }
        let at = self.take().map_or(self.end, |bracket| bracket.at);
        let mut pairs = Vec::new();
        while !self.peek_is("]") {
            let first = self.word(key)?;
            self.mark(":", key)?;
            pairs.push((first, self.word(key)?));
            if !self.peek_is("]") {
                self.mark(",", key)?;
            }
        }
        self.mark("]", key)?;
        Ok(Raw::List { at, pairs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn whitespace_and_a_last_comma_do_not_count() {
        let said = parse(" max_split_size_mb : 2 0 ,\texpandable_segments:True, ").unwrap();
        assert_eq!(said.settings().len(), 2);
        let split = said.get(Key::MaxSplitSizeMb).unwrap();
        assert_eq!((split.text.as_str(), &split.value), ("20", &Value::Bytes(20 << 20)));
        assert_eq!(split.place, Some(Place::Byte(21)));
        assert_eq!(parse("").unwrap(), Said::default());
        assert_eq!(parse(" \n").unwrap(), Said::default());
    }

    #[test]
    fn the_last_of_two_counts_and_is_said() {
        let said = parse("max_split_size_mb:30,backend:native,max_split_size_mb:40").unwrap();
        assert_eq!(said.settings().len(), 2);
        assert_eq!(said.get(Key::MaxSplitSizeMb).unwrap().value, Value::Bytes(40 << 20));
        assert_eq!(said.warnings().len(), 1);
        assert_eq!(said.warnings()[0].concern, Concern::Duplicate);
        assert_eq!(said.warnings()[0].text, "given twice: 40 counts, 30 does not");
        let aliases = parse("release_lock_on_hipmalloc:True,release_lock_on_cudamalloc:False");
        assert_eq!(aliases.unwrap().warnings().len(), 1, "an alias is the same setting");
    }

    #[test]
    fn k21_an_unknown_key_is_named() {
        assert_eq!(
            error("expandable_segments:True,max_split:20"),
            "max_split at byte 25: unknown setting; did you mean max_split_size_mb?"
        );
        assert_eq!(error("zzz:1"), "zzz at byte 0: unknown setting");
        assert!(error("tie_order:address").contains("is not a setting of PyTorch"));
        assert!(parse_own("tie_order:address").is_ok());
    }

    #[test]
    fn broken_grammar_names_the_place() {
        for (text, wanted) in [
            (",", "at byte 0: expected a setting, found ','"),
            ("backend", "backend at byte 7: expected ':', found the end"),
            ("backend:", "backend at byte 8: expected a value, found the end"),
            ("backend:,", "backend at byte 8: expected a value, found ','"),
            ("backend:native:x", "backend at byte 14: expected ',', found ':'"),
            (
                "roundup_power2_divisions:[1:2",
                "roundup_power2_divisions at byte 29: expected ',', found the end",
            ),
            (
                "roundup_power2_divisions:[1]",
                "roundup_power2_divisions at byte 27: expected ':', found ']'",
            ),
            (
                "roundup_power2_divisions:[1:2]3",
                "roundup_power2_divisions at byte 30: expected ',', found '3'",
            ),
            ("backend:native,,", "at byte 15: expected a setting, found ','"),
        ] {
            assert_eq!(error(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_recorded_text_may_hold_keys_of_other_releases() {
        let said = parse_as("gone:[1:2],max_split_size_mb:20", Dialect::Recorded).unwrap();
        assert_eq!(said.settings().len(), 1);
        assert_eq!(said.warnings()[0].key, "gone");
        assert!(parse_as("max_split_size_mb:x", Dialect::Recorded).is_err());
    }
}
