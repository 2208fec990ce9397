//! Summary: the statistics of a moment.

use blockyard::ledger::{memory_summary, pool_summary};
use blockyard::vocab::PoolUsage;
use serde_json::{Value, json};

use super::pictures::Subject;
use super::{
    busiest, looks_as_recorded, named, policies, print, print_json, read, replay_json, say_which,
    show_notices,
};
use crate::cli::Summary;
use crate::fail::Fail;
use crate::session::{Options, Outcome};

pub(super) fn run(arguments: &Summary) -> Result<(), Fail> {
    let recording = read(&arguments.file)?;
    show_notices(&arguments.common, &arguments.file, &recording);
    let trace = busiest(&arguments.file, &recording, arguments.engine.device)?;
    say_which(&arguments.common, &recording, trace, &arguments.engine);
    let policies = policies(&arguments.engine, &recording)?;
    let [effective] = &policies[..] else {
        return Err(Fail::BadInput("summary takes one --policy, not several".to_string()));
    };
    let options = Options {
        capacity: arguments.engine.capacity,
        recorded: trace.events.is_empty() || looks_as_recorded(&arguments.engine, trace),
        continue_on_oom: true,
        curve: false,
        stop: None,
        quiet: arguments.common.quiet,
    };
    let subject = Subject {
        file: &arguments.file,
        recording: &recording,
        trace,
        effective,
        options: &options,
    };
    let (outcome, _) = subject.at(Some(&arguments.at))?;
    if arguments.common.json {
        return print_json(&json!({
            "file": named(&arguments.file),
            "format": recording.format,
            "device": trace.device,
            "policy": effective.policy.name,
            "at_event": outcome.events.checked_sub(1),
            "notices": replay_json::notices(&recording),
            "stats": stats(&outcome),
            "pools": pools(&outcome),
        }));
    }
    let name = |pool: u32, class: &str, stream: u32| {
        let whose = match recording.pools.get(pool as usize) {
            Some(&(a, b)) if pool > 0 => format!("({a}, {b}) "),
            _ => String::new(),
        };
        format!("{whose}{class}, stream {stream}")
    };
    let rows: Vec<(String, PoolUsage)> = outcome
        .usage
        .iter()
        .map(|&(pool, class, stream, usage)| (name(pool, class, stream), usage))
        .collect();
    let text = format!(
        "{}: {} {}, policy {}\n\n{}\n{}",
        named(&arguments.file),
        recording.format,
        arguments.at,
        effective.policy.name,
        memory_summary(&outcome.stats, trace.device, arguments.abbreviated),
        pool_summary(&rows)
    );
    print(format!("{}\n", text.trim_end()).as_bytes())
}

fn stats(outcome: &Outcome) -> Value {
    Value::Object(
        outcome.stats.flat().into_iter().map(|(key, value)| (key, value.into())).collect(),
    )
}

fn pools(outcome: &Outcome) -> Value {
    let rows = outcome.usage.iter().map(|&(pool, class, stream, usage)| {
        let PoolUsage {
            reserved_bytes,
            allocated_bytes,
            releasable_bytes,
            pinned_free_bytes,
            awaiting_free_bytes,
            largest_free_bytes,
            rounding_bytes,
        } = usage;
        json!({
            "pool": class,
            "private_pool": (pool > 0).then_some(pool),
            "stream": stream,
            "reserved_bytes": reserved_bytes,
            "allocated_bytes": allocated_bytes,
            "releasable_bytes": releasable_bytes,
            "pinned_free_bytes": pinned_free_bytes,
            "awaiting_free_bytes": awaiting_free_bytes,
            "largest_free_bytes": largest_free_bytes,
            "rounding_bytes": rounding_bytes,
        })
    });
    rows.collect()
}
