//! Fail: how a command ends when it does not end well, and the exit code for it.

use std::fmt;
use std::io::Write;

/// The ways a command can end badly. The exit codes are documented and relied on.
#[derive(Debug)]
pub enum Fail {
    /// A bug of ours: exit 1.
    Internal(String),
    /// Bad usage or bad input: exit 2. The text names file, place and what was expected.
    BadInput(String),
    /// The replay ran out of memory: exit 3. Everything was written.
    OutOfMemory,
    /// A check that was asked for failed: exit 4. The text says which.
    Check(String),
}

impl Fail {
    /// The process's exit code.
    #[must_use]
    pub const fn code(&self) -> u8 {
        match self {
            Self::Internal(_) => 1,
            Self::BadInput(_) => 2,
            Self::OutOfMemory => 3,
            Self::Check(_) => 4,
        }
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internal(text) => {
                write!(
                    f,
                    "internal failure: {text}\nThis is a bug: please report it with the command line."
                )
            }
            Self::BadInput(text) | Self::Check(text) => f.write_str(text),
            Self::OutOfMemory => f.write_str("the replay ran out of memory"),
        }
    }
}

impl std::error::Error for Fail {}

impl From<crate::formats::FormatError> for Fail {
    fn from(error: crate::formats::FormatError) -> Self {
        Self::BadInput(error.to_string())
    }
}

impl From<blockyard::policy::SettingsError> for Fail {
    fn from(error: blockyard::policy::SettingsError) -> Self {
        Self::BadInput(error.to_string())
    }
}

/// Says a line on standard error. Where nobody listens any more (a closed pipe) it is lost, and the
/// exit code still says how the command ended.
pub fn say(line: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Writing to a place the user named failed.
pub fn cannot_write(path: &std::path::Path, error: impl fmt::Display) -> Fail {
    Fail::BadInput(format!("{}: cannot be written: {error}", path.display()))
}
