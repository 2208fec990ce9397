//! Formats.
pub mod write;
