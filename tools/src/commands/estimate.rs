//! Estimate: what training a model should take, beside what a recording took.

use std::path::Path;

use blockyard::ledger::Metric;
use blockyard::tensor::DType;
use blockyard::vocab::Human;
use serde_json::{Value, json};

use super::{
    busiest, looks_as_recorded, policies, print, print_json, read, say_which, show_notices,
};
use crate::cli::Estimate as Arguments;
use crate::estimate::{Basis, Estimate, Group, Model, NOT_COUNTED};
use crate::fail::Fail;
use crate::model_file::{Entry, ModelFile, dtype_of};
use crate::session::{self, Options};
use crate::table;

/// What a recording came to. Sizes are bytes.
struct Seen {
    device: u32,
    policy: String,
    live: u64,
    allocated: u64,
    reserved: u64,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Fail> {
    let model = model(arguments)?;
    let too_large = || Fail::BadInput("the model is larger than any memory".to_string());
    let estimate = model.estimate().ok_or_else(too_large)?;
    let seen = arguments.trace.as_deref().map(|file| seen(arguments, file)).transpose()?;
    if arguments.common.json {
        return print_json(&document(arguments, &estimate, seen.as_ref()));
    }
    print(page(arguments, &estimate, seen.as_ref()).as_bytes())
}

/// The model that file and flags describe; flags go before the file.
fn model(arguments: &Arguments) -> Result<Model, Fail> {
    let file = match &arguments.model {
        None => ModelFile::default(),
        Some(path) => ModelFile::read(path)
            .map_err(|error| Fail::BadInput(format!("{}: {error}", path.display())))?,
    };
    let bad = |error| match &arguments.model {
        Some(path) => Fail::BadInput(format!("{}: {error}", path.display())),
        None => Fail::BadInput(error),
    };
    let said = |text: Option<&String>| text.map(|text| dtype_of(text)).transpose();
    let dtype = said(arguments.dtype.as_ref().or(file.dtype.as_ref())).map_err(bad)?;
    let dtype = dtype.unwrap_or(DType::F32);
    let gradient =
        said(arguments.gradient_dtype.as_ref().or(file.gradient_dtype.as_ref())).map_err(bad)?;
    let groups = |entries: &[Entry]| -> Result<Vec<Group>, Fail> {
        entries.iter().map(|entry| entry.group(dtype).map_err(bad)).collect()
    };
    let mut parameters = groups(&file.parameters)?;
    if let Some(number) = arguments.params {
        let group = Group { elements: u128::from(number), dtype, count: 1, trainable: true };
        parameters.push(group);
    }
    if parameters.is_empty() {
        let text = "no parameters: expected --params NUMBER or a model file with parameters";
        return Err(Fail::BadInput(text.to_string()));
    }
    let mut activations = groups(&file.activations)?;
    activations.extend(groups(&arguments.activations)?);
    Ok(Model {
        parameters,
        by_tensor: arguments.params.is_none(),
        activations,
        optimizer: arguments.optimizer.or(file.optimizer).unwrap_or_default(),
        gradient,
        master_weights: arguments.master_weights || file.master_weights.unwrap_or(false),
    })
}

/// Replays the recording and takes its peaks.
fn seen(arguments: &Arguments, file: &Path) -> Result<Seen, Fail> {
    let recording = read(file)?;
    show_notices(&arguments.common, file, &recording);
    let trace = busiest(file, &recording, arguments.engine.device)?;
    say_which(&arguments.common, &recording, trace, &arguments.engine);
    let mut policies = policies(&arguments.engine, &recording)?;
    let (1, Some(effective)) = (policies.len(), policies.pop()) else {
        return Err(Fail::BadInput("estimate takes one --policy, not several".to_string()));
    };
    let options = Options {
        capacity: arguments.engine.capacity,
        recorded: trace.events.is_empty() || looks_as_recorded(&arguments.engine, trace),
        continue_on_oom: true,
        curve: false,
        stop: None,
        quiet: arguments.common.quiet,
    };
    let policy = effective.policy.name.clone();
    let (outcome, ()) = session::replay(&recording, trace, effective, &options, ())?;
    Ok(Seen {
        device: outcome.device,
        policy,
        live: outcome.peak_live,
        allocated: outcome.stats.peak(Metric::AllocatedBytes),
        reserved: outcome.stats.peak(Metric::ReservedBytes),
    })
}

/// Seen minus estimated.
fn difference(seen: &Seen, estimate: &Estimate) -> i64 {
    i64::try_from(i128::from(seen.live) - i128::from(estimate.peak_bytes)).unwrap_or(i64::MAX)
}

fn document(arguments: &Arguments, estimate: &Estimate, seen: Option<&Seen>) -> Value {
    let capacity = arguments.engine.capacity;
    json!({
        "rows": estimate.rows,
        "static_bytes": estimate.static_bytes,
        "peak_bytes": estimate.peak_bytes,
        "peak_basis": Basis::Guess,
        "not_counted": NOT_COUNTED,
        "capacity_bytes": capacity,
        "fits": capacity.map(|capacity| estimate.peak_bytes <= capacity),
        "trace": seen.zip(arguments.trace.as_ref()).map(|(seen, file)| json!({
            "file": file.display().to_string(),
            "device": seen.device,
            "policy": seen.policy,
            "peak_live_bytes": seen.live,
            "peak_allocated_bytes": seen.allocated,
            "peak_reserved_bytes": seen.reserved,
            "live_minus_estimate_bytes": difference(seen, estimate),
        })),
    })
}

const fn named(basis: Basis) -> &'static str {
    match basis {
        Basis::Exact => "exact",
        Basis::Rule => "rule",
        Basis::Guess => "GUESS",
    }
}

fn page(arguments: &Arguments, estimate: &Estimate, seen: Option<&Seen>) -> String {
    let heads = ["part", "elements", "bytes", "", "rounded", "basis", "why"];
    let mut rows = vec![heads.map(String::from).to_vec()];
    for row in &estimate.rows {
        let rounded = row.rounded_bytes.map_or("-".to_string(), table::count);
        rows.push(vec![
            row.part.to_string(),
            table::count(row.elements),
            table::count(row.bytes),
            Human(row.bytes).to_string(),
            rounded,
            named(row.basis).to_string(),
            row.note.to_string(),
        ]);
    }
    let mut lines = table::lines(&rows);
    lines.push(String::new());
    let total = |name: &str, bytes: u64, why: &str| {
        let human = Human(bytes).to_string();
        vec![name.to_string(), table::count(bytes), human, why.to_string()]
    };
    let mut totals = vec![
        total("between two steps", estimate.static_bytes, "parameters, gradients, states"),
        total("at the peak, GUESS", estimate.peak_bytes, "all parts at once"),
    ];
    if let Some(seen) = seen {
        let why = format!("what the program asked for, device {}", seen.device);
        totals.push(total("seen: live", seen.live, &why));
        totals.push(total("seen: allocated", seen.allocated, "rounded, handed out"));
        let why = format!("taken from the driver under policy {}", seen.policy);
        totals.push(total("seen: reserved", seen.reserved, &why));
    }
    lines.extend(table::lines(&totals));
    if let Some(seen) = seen {
        let over = difference(seen, estimate);
        let side = if over < 0 { "less" } else { "more" };
        lines.push(String::new());
        let human = Human(over.unsigned_abs());
        lines.push(format!("the recording's live peak is {human} {side} than the estimate"));
    }
    if let Some(capacity) = arguments.engine.capacity {
        let fits = if estimate.peak_bytes <= capacity { "fits into" } else { "does NOT fit into" };
        lines.push(format!("the estimate {fits} {}", Human(capacity)));
    }
    lines.push(String::new());
    lines.push("Not counted, so the truth is higher:".to_string());
    lines.extend(NOT_COUNTED.iter().map(|what| format!("  - {what}")));
    format!("{}\n", lines.join("\n"))
}
