//! Doctor: settings, driver, devices and limits on one page to attach to a report. It does not fail.

use std::path::Path;

use blockyard::policy::settings::{self, Effective, Source, VARIABLES};
use serde_json::{Value, json};

use super::doctor_cuda::{ASKED, cuda_facts};
use super::doctor_facts::{Fact, Machine};
use super::{named, policy, print, print_json, replay_json};
use crate::cli::Doctor;
use crate::fail::Fail;
use crate::table::lines;

/// The variable with this project's own settings, laid over `blockyard`.
const OWN: &str = "BLOCKYARD_CONF";

/// Settings in force, or what is wrong with what was said.
struct Asked {
    /// Where they were said.
    origin: String,
    effective: Result<Effective, String>,
}

pub(super) fn run(arguments: &Doctor) -> Result<(), Fail> {
    let variable = |name: &str| std::env::var(name).ok();
    let asked = asked(arguments.settings.as_deref(), &variable);
    let mut facts = Machine { root: Path::new("/"), variable: &variable }.facts();
    let driver = cuda_facts();
    facts.extend(driver.clone().unwrap_or_else(|reason| without_cuda(&reason)));
    facts.extend(supported(driver.map(|_| "yes".to_string())));
    if arguments.common.json {
        return print_json(&document(&asked, &facts));
    }
    print(page(&asked, &facts).as_bytes())
}

/// What is in force: for PyTorch, for blockyard where its variable is set, and of a file.
fn asked(file: Option<&Path>, variable: &dyn Fn(&str) -> Option<String>) -> Vec<Asked> {
    let mut asked = Vec::new();
    if let Some(file) = file {
        let name = named(file);
        let suffix = file.extension().and_then(|suffix| suffix.to_str());
        let effective = match suffix {
            Some("toml" | "json") => policy(&name, None).map_err(|error| error.to_string()),
            _ => Err(format!("{name}: expected a settings file, .toml or .json")),
        };
        asked.push(Asked { origin: name, effective });
    }
    let set = VARIABLES.into_iter().find(|name| variable(name).is_some());
    let origin = set.unwrap_or("defaults (no PYTORCH_*_ALLOC_CONF is set)").to_string();
    let effective = settings::from_environment(variable).map_err(|error| error.to_string());
    asked.push(Asked { origin, effective });
    if let Some(text) = variable(OWN) {
        let said = settings::parse_own(&text);
        let base = blockyard::policy::presets::blockyard();
        let effective =
            said.and_then(|said| settings::apply(base, &said, Source::Environment(OWN)));
        let effective = effective.map_err(|error| format!("{OWN}: {error}"));
        asked.push(Asked { origin: OWN.to_string(), effective });
    }
    for one in &mut asked {
        one.effective = std::mem::replace(&mut one.effective, Err(String::new()))
            .map(|effective| effective.for_device(None));
    }
    asked
}

fn without_cuda(reason: &str) -> Vec<Fact> {
    let unknown = |name: &&'static str| Fact::new("driver", *name, Err(reason.to_string()));
    ASKED.iter().map(unknown).collect()
}

/// What this build can do here.
fn supported(cuda: Result<String, String>) -> Vec<Fact> {
    let fact = |name: &str, value: &str| Fact::new("support", name, Ok(value.to_string()));
    vec![
        fact("replay, charts, diagnosis", "yes: they need no GPU"),
        fact("host device", "yes"),
        Fact::new("support", "CUDA device", cuda),
        fact(
            "backend:cudaMallocAsync",
            "no: the settings are read, the driver's pool is not modelled",
        ),
    ]
}

fn page(asked: &[Asked], facts: &[Fact]) -> String {
    let mut text = String::from("blockyard doctor\n");
    for one in asked {
        text += &format!("\nsettings from {}\n", one.origin);
        match &one.effective {
            Err(problem) => text += &format!("  problem: {problem}\n"),
            Ok(effective) => text += &said(effective),
        }
    }
    let mut section = "";
    let rows = |section: &str| {
        let rows = facts.iter().filter(|fact| fact.section == section).map(|fact| {
            let value = match &fact.value {
                Ok(value) => value.clone(),
                Err(reason) => format!("unknown: {reason}"),
            };
            vec![format!("  {}", fact.name), value]
        });
        lines(&rows.collect::<Vec<_>>()).join("\n")
    };
    for fact in facts {
        if fact.section != section {
            section = fact.section;
            text += &format!("\n{section}\n{}\n", rows(section));
        }
    }
    text
}

/// What was asked for and what came of it; defaults are left to `blockyard settings`.
fn said(effective: &Effective) -> String {
    let requested: Vec<Vec<String>> = effective
        .entries
        .iter()
        .filter(|entry| entry.requested.is_some())
        .map(|entry| {
            let asked = entry.requested.as_deref().unwrap_or_default();
            vec![
                format!("  {}", entry.key),
                format!("{} (asked: {asked})", entry.effective),
                entry.source.to_string(),
            ]
        })
        .collect();
    let mut text = match requested.is_empty() {
        true => "  nothing was asked for: every setting is the preset's\n".to_string(),
        false => lines(&requested).join("\n") + "\n",
    };
    let defaults = effective.entries.len() - requested.len();
    if !requested.is_empty() {
        text +=
            &format!("  {defaults} more at the preset's value (`blockyard settings` lists them)\n");
    }
    for warning in &effective.warnings {
        text += &format!("  warning: {}: {}\n", warning.key, warning.text);
    }
    text
}

fn document(asked: &[Asked], facts: &[Fact]) -> Value {
    let settings = asked.iter().map(|one| {
        let effective = one.effective.as_ref().ok();
        let warnings = effective.map(|effective| {
            let warning =
                |warning: &settings::Warning| json!({ "key": warning.key, "text": warning.text });
            effective.warnings.iter().map(warning).collect::<Vec<_>>()
        });
        json!({
            "origin": one.origin,
            "policy": effective.map(|effective| effective.policy.name.clone()),
            "effective_settings": effective.map(replay_json::settings),
            "warnings": warnings.unwrap_or_default(),
            "problem": one.effective.as_ref().err(),
        })
    });
    let facts = facts.iter().map(|fact| {
        json!({
            "section": fact.section,
            "name": fact.name,
            "value": fact.value.as_ref().ok(),
            "unknown": fact.value.as_ref().err(),
        })
    });
    json!({ "settings": settings.collect::<Vec<_>>(), "facts": facts.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_a_problem_with_its_name_and_no_failure() {
        let set = |name: &str| match name {
            "PYTORCH_CUDA_ALLOC_CONF" => Some("max_splt_size_mb:128".to_string()),
            OWN => Some("max_split_size_mb:64".to_string()),
            _ => None,
        };
        let asked = asked(None, &set);
        let page = page(&asked, &[]);
        assert!(page.contains("settings from PYTORCH_CUDA_ALLOC_CONF\n  problem: "), "{page}");
        assert!(page.contains("max_splt_size_mb"), "{page}");
        assert!(page.contains("64 MiB (asked: 64)"), "{page}");
    }

    #[test]
    fn every_driver_fact_is_unknown_by_name_without_a_driver() {
        let facts = without_cuda("no CUDA driver found");
        assert_eq!(facts.len(), ASKED.len());
        let page = page(&[], &facts);
        assert!(page.contains("unknown: no CUDA driver found"), "{page}");
    }
}
