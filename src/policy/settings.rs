//! Settings: from text to what was said, to what is meant.

/// What is in force, against what was asked for.
#[derive(Clone, Debug)]
pub struct Effective {}

/// A setting that cannot be read, by name.
#[derive(Clone, Debug)]
pub struct SettingsError {}
