//! Settings: what is in force, against what was asked for.

use blockyard::policy::settings;
use serde_json::json;

use super::{policy, print, print_json, replay_json};
use crate::cli::Settings;
use crate::fail::Fail;

pub(super) fn run(arguments: &Settings) -> Result<(), Fail> {
    let effective = match &arguments.policy {
        Some(spec) => policy(spec, None)?,
        None => settings::from_environment(|name| std::env::var(name).ok())?,
    };
    let effective = effective.for_device(arguments.capacity);
    if arguments.common.json {
        let warnings: Vec<_> = effective
            .warnings
            .iter()
            .map(|warning| json!({ "key": warning.key, "text": warning.text }))
            .collect();
        return print_json(&json!({
            "policy": effective.policy.name,
            "effective_settings": replay_json::settings(&effective),
            "warnings": warnings,
        }));
    }
    print(format!("{}\n", effective.to_string().trim_end()).as_bytes())
}
