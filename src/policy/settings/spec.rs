//! Spec: a `--policy` argument to a policy.
//!
//! `pytorch`, `pytorch-expandable`, `blockyard`, `blockyard-native`, `pinned`, each alone or with `:TEXT`.
//! Settings files are the caller's to read (`from_file_text`).

use alloc::format;

use super::{
    Effective, SettingsError, Source, apply,
    keys::{nearest, one_of},
    parse::{Dialect, parse_as},
};
use crate::policy::{Policy, presets};

/// The policy that `spec` names. Plain `pytorch` takes the settings that a recording carries; with
/// a text, even an empty one, only the text counts. Ours take PyTorch's keys and this project's.
///
/// # Errors
/// An unknown preset, or the first setting that cannot be taken.
pub fn policy_from(spec: &str, recorded: Option<&str>) -> Result<Effective, SettingsError> {
    let (name, text) = match spec.split_once(':') {
        Some((name, text)) => (name, Some(text)),
        None => (spec, None),
    };
    let base = preset(name)?;
    let strict = if name.starts_with("pytorch") { Dialect::PyTorch } else { Dialect::Own };
    let mut effective = match (text, recorded) {
        (Some(text), _) => apply(base, &parse_as(text, strict)?, Source::Text),
        (None, Some(recorded)) if name == "pytorch" => parse_as(recorded, Dialect::Recorded)
            .and_then(|said| apply(base, &said, Source::Recording))
            .map_err(|error| error.origin("the recording's settings")),
        (None, _) => Ok(Effective::of(base)),
    }?;
    effective.policy.name = spec.into();
    Ok(effective)
}

/// The preset of that name, or an error that lists all.
pub(super) fn preset(name: &str) -> Result<Policy, SettingsError> {
    presets::named(name).ok_or_else(|| {
        let hint = nearest(name, presets::NAMES.into_iter())
            .map_or_else(Default::default, |meant| format!("; did you mean {meant}?"));
        let names = one_of(&presets::NAMES);
        SettingsError::new(format!("unknown policy, expected {names}{hint}")).value(name)
    })
}

#[cfg(test)]
mod tests {
    use super::super::Key;
    use super::*;
    use crate::vocab::MIB;
    use alloc::string::ToString;

    #[test]
    fn presets_stand_alone_or_with_a_text() {
        for name in presets::NAMES {
            assert_eq!(policy_from(name, None).unwrap().policy, presets::named(name).unwrap());
            let spec = format!("{name}:max_split_size_mb:64");
            let effective = policy_from(&spec, None).unwrap();
            assert_eq!(effective.policy.max_split, 64 * MIB);
            assert_eq!(effective.policy.name, spec);
        }
        let ours = policy_from("blockyard:tie_order:address", None).unwrap();
        assert_eq!(ours.entry(Key::TieOrder).effective, "address");
        assert!(policy_from("pytorch:tie_order:address", None).is_err());
    }

    #[test]
    fn only_plain_pytorch_takes_the_recorded_settings() {
        let recorded = Some("max_split_size_mb:64,of_another_release:True");
        let plain = policy_from("pytorch", recorded).unwrap();
        assert_eq!(plain.policy.max_split, 64 * MIB);
        assert_eq!(plain.policy.name, "pytorch");
        assert_eq!(plain.entry(Key::MaxSplitSizeMb).source, Source::Recording);
        assert_eq!(plain.warnings.len(), 1, "the unknown key is said");
        for spec in ["pytorch:", "pytorch-expandable", "blockyard"] {
            let other = policy_from(spec, recorded).unwrap();
            assert_eq!(other.policy.max_split, u64::MAX, "{spec}");
            assert_eq!(other.warnings, []);
        }
        let error = policy_from("pytorch", Some("max_split_size_mb:x")).unwrap_err();
        assert!(error.to_string().starts_with("the recording's settings: max_split_size_mb"));
    }

    #[test]
    fn an_unknown_preset_lists_them() {
        assert_eq!(
            policy_from("pytorch-expandible", None).unwrap_err().to_string(),
            "\"pytorch-expandible\": unknown policy, expected pytorch, pytorch-expandable, \
             blockyard, blockyard-native or pinned; did you mean pytorch-expandable?"
        );
        assert!(policy_from("", None).is_err());
    }
}
