//! Environment: the settings text of the first variable that is set.

use std::{format, string::String};

use super::{Concern, Effective, SettingsError, Source, apply, parse};
use crate::policy::{Policy, presets};

/// The variables that PyTorch reads, first one first.
pub const VARIABLES: [&str; 3] =
    ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// PyTorch's policy under the environment's settings. `lookup` answers a variable's value if it is
/// set: `|name| std::env::var(name).ok()` outside tests.
///
/// # Errors
/// The first setting that cannot be taken, with its variable.
pub fn from_environment(
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<Effective, SettingsError> {
    from_environment_over(presets::pytorch(), lookup)
}

/// Another policy under the environment's settings. The first variable that is set wins, even when
/// it is empty; that others are set too is a warning.
///
/// # Errors
/// As [`from_environment`].
pub fn from_environment_over(
    base: Policy,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<Effective, SettingsError> {
    let mut set = VARIABLES.into_iter().filter_map(|name| Some((name, lookup(name)?)));
    let Some((name, text)) = set.next() else {
        return Ok(Effective::of(base));
    };
    let mut said = parse(&text).map_err(|error| error.origin(name))?;
    for (other, ignored) in set.filter(|(_, other)| *other != text) {
        let shown = super::error::Clipped(&ignored);
        said.warn(
            other,
            Concern::Ignored,
            format!("set to \"{shown}\" but not read: {name} is set"),
        );
    }
    apply(base, &said, Source::Environment(name)).map_err(|error| error.origin(name))
}

#[cfg(test)]
mod tests {
    use super::super::Key;
    use super::*;
    use std::string::ToString;

    fn environment(set: &[(&str, &str)]) -> Result<Effective, SettingsError> {
        from_environment(|name| {
            set.iter().find(|(key, _)| *key == name).map(|(_, text)| (*text).into())
        })
    }

    #[test]
    fn k21_the_first_variable_that_is_set_wins_and_is_the_source() {
        assert_eq!(environment(&[]).unwrap().policy, presets::pytorch());
        let main = environment(&[("PYTORCH_ALLOC_CONF", "expandable_segments:True")]).unwrap();
        assert!(main.policy.page_mapped());
        let source = &main.entry(Key::ExpandableSegments).source;
        assert_eq!(source, &Source::Environment("PYTORCH_ALLOC_CONF"));

        let two =
            [("PYTORCH_ALLOC_CONF", "expandable_segments:True"), ("PYTORCH_CUDA_ALLOC_CONF", "")];
        let two = environment(&two).unwrap();
        assert!(!two.policy.page_mapped(), "set and empty wins over a later one");
        assert_eq!(two.warnings.len(), 1);
        assert_eq!(two.warnings[0].concern, Concern::Ignored);
        assert_eq!(
            two.warnings[0].to_string(),
            "PYTORCH_ALLOC_CONF: set to \"expandable_segments:True\" but not read: \
             PYTORCH_CUDA_ALLOC_CONF is set"
        );
    }

    #[test]
    fn an_error_names_its_variable() {
        for text in ["max_split_size_mb:2x", "max_split_size_mb:2"] {
            let error = environment(&[("PYTORCH_HIP_ALLOC_CONF", text)]).unwrap_err().to_string();
            assert!(error.starts_with("PYTORCH_HIP_ALLOC_CONF: max_split_size_mb \"2"), "{error}");
            assert!(error.contains("at byte 18"), "{error}");
        }
    }
}
