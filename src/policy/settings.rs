//! Settings: from text to what was said, to what is meant.
//!
//! Two types stand for the two steps. [`Said`] is a text that was understood, setting by setting;
//! [`Effective`] is a [`Policy`] that is in force, with each setting's requested and effective
//! value, where it came from, and a warning for every request that does nothing or does harm. Asked
//! by the command line, the allocator's builder and the replay. Never asks for a device: what
//! depends on its capacity is said by [`Effective::for_device`].
//!
//! | file | what it holds |
//! |---|---|
//! | `keys` | every setting's names, kind of value and family |
//! | `lexer`, `parse`, `value`, `divisions` | text to [`Said`] |
//! | `apply`, `advice`, `validate` | [`Said`] to [`Effective`] |
//! | `show`, `error` | how both are printed |
//! | `spec` | a `--policy` argument; `file` and `environment` need `std` |

use alloc::{string::String, vec::Vec};

use super::Policy;

mod advice;
mod apply;
mod divisions;
mod error;
mod keys;
mod lexer;
mod parse;
mod show;
mod spec;
mod validate;
mod value;

#[cfg(feature = "std")]
mod environment;
#[cfg(feature = "std")]
mod file;

#[cfg(test)]
mod cases;

pub use apply::{apply, reapply};
pub use error::{Place, SettingsError};
pub use keys::Key;
pub use parse::{Said, Setting, parse, parse_own};
pub use spec::policy_from;
pub use validate::validate;
pub use value::Value;

#[cfg(feature = "std")]
pub use environment::{VARIABLES, from_environment, from_environment_over};
#[cfg(feature = "std")]
pub use file::from_file_text;

/// Where a setting's value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The preset: nobody asked for anything else.
    Preset,
    /// A text that the user gave, as in `pytorch:TEXT`.
    Text,
    /// The text that a recording carries.
    Recording,
    /// An environment variable, by name.
    Environment(&'static str),
    /// A settings file, by name.
    File(String),
    /// A call of the library.
    Api,
    /// Another setting, which this one follows.
    Follows(&'static str),
}

/// One setting: what was asked for and what is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The setting's name.
    pub key: &'static str,
    /// What was asked for, as written; `None`: nothing.
    pub requested: Option<String>,
    /// What is in force.
    pub effective: String,
    /// Where the effective value came from.
    pub source: Source,
}

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// The setting changes nothing.
    NoEffect,
    /// The setting does harm as combined.
    Harmful,
    /// The setting was given twice; the last one counts.
    Duplicate,
    /// Something was given and not read.
    Ignored,
    /// An earlier value went back to its default.
    Reset,
}

/// A request that does not do what it seems to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The setting, or the environment variable.
    pub key: String,
    /// What it is about.
    pub concern: Concern,
    /// One sentence, which does not repeat the key.
    pub text: String,
}

/// What is in force, against what was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    /// The policy in force.
    pub policy: Policy,
    /// Every setting, in the order of [`Key::ALL`].
    pub entries: Vec<Entry>,
    /// What was asked for in vain, or to harm.
    pub warnings: Vec<Warning>,
}

impl Effective {
    /// A policy as it stands: nothing was requested.
    #[must_use]
    pub fn of(policy: Policy) -> Self {
        let entries = Key::ALL
            .iter()
            .map(|&key| Entry {
                key: key.name(),
                requested: None,
                effective: show::effective(&policy, key),
                source: Source::Preset,
            })
            .collect();
        Self { policy, entries, warnings: Vec::new() }
    }

    /// The entry of one setting.
    #[must_use]
    pub fn entry(&self, key: Key) -> &Entry {
        &self.entries[key as usize]
    }

    /// Whether anybody asked for this setting.
    #[must_use]
    pub fn is_requested(&self, key: Key) -> bool {
        self.entry(key).requested.is_some()
    }
}
