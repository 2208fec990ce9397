//! Lexer: the words and marks of a settings text.
//!
//! Whitespace is dropped wherever it stands, inside words too, as PyTorch does. Knows no setting.

use alloc::{string::String, vec::Vec};

/// A word, or one of the marks `,` `:` `[` `]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The word without whitespace, or the mark.
    pub text: String,
    /// Where it starts, in bytes.
    pub at: usize,
}

impl Token {
    pub(super) fn is(&self, mark: &str) -> bool {
        self.text == mark
    }

    pub(super) fn is_mark(&self) -> bool {
        matches!(self.text.as_str(), "," | ":" | "[" | "]")
    }
}

/// All tokens of a text. O(length).
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut open = false;
    for (at, letter) in text.char_indices() {
        if letter.is_whitespace() {
            continue;
        }
        let mark = matches!(letter, ',' | ':' | '[' | ']');
        match tokens.last_mut() {
            Some(word) if open && !mark => word.text.push(letter),
            _ => tokens.push(Token { text: String::from(letter), at }),
        }
        open = !mark;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitespace_vanishes_and_places_stay() {
        let found: Vec<_> = tokens(" a b :[ >:\t1]").into_iter().map(|t| (t.text, t.at)).collect();
        let wanted = [("ab", 1), (":", 5), ("[", 6), (">", 8), (":", 9), ("1", 11), ("]", 12)];
        assert_eq!(found, wanted.map(|(text, at)| (text.into(), at)));
        assert_eq!(tokens(" \n"), []);
    }
}
