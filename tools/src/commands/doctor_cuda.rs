//! CUDA facts: what the driver says of itself and of its devices, on the page of `doctor`.
//!
//! Asked by `doctor`. Where no driver can be asked, the reason is the fact. A device's context is opened for as long as
//! its questions take, which costs memory of that device meanwhile.

use super::doctor_facts::Fact;

/// What is asked of a driver, in order: each comes as a value, or as unknown with the reason.
pub(super) const ASKED: [&str; 7] = [
    "driver version (CUDA)",
    "devices",
    "memory of each device",
    "page granularity",
    "virtual memory management",
    "driver model (WDDM, TCC)",
    "memory pools (cudaMallocAsync)",
];

/// The answers to [`ASKED`], or why nobody can be asked.
#[cfg(not(feature = "cuda"))]
pub(super) fn cuda_facts() -> Result<Vec<Fact>, String> {
    Err("this build has no CUDA device".to_string())
}

/// The answers to [`ASKED`], or why nobody can be asked.
#[cfg(feature = "cuda")]
pub(super) fn cuda_facts() -> Result<Vec<Fact>, String> {
    use std::sync::Arc;

    use blockyard::device::cuda::{CudaError, Driver, Gpu};
    use blockyard::vocab::Human;

    let driver = Driver::load().map_err(|error| error.to_string())?;
    let gpus: Vec<Result<Arc<Gpu>, CudaError>> = (0..driver.devices()).map(Gpu::open).collect();
    let each = |tell: &dyn Fn(&Gpu) -> Result<String, CudaError>| -> Result<String, String> {
        let told = gpus.iter().enumerate().map(|(ordinal, gpu)| {
            let answer = gpu.as_ref().map_err(Clone::clone).and_then(|gpu| tell(gpu));
            answer
                .map(|answer| format!("{ordinal}: {answer}"))
                .map_err(|error| format!("{ordinal}: {error}"))
        });
        let told: Vec<String> = told.collect::<Result<_, _>>()?;
        if told.is_empty() { Err("there is no device".to_string()) } else { Ok(told.join(", ")) }
    };
    let yes = |holds| Ok(if holds { "yes" } else { "no" }.to_string());
    let version = driver.version();
    let version = format!("{}.{}, from {}", version / 1000, version % 1000 / 10, driver.path());
    let simulated = if driver.is_simulated() { " (a simulated driver)" } else { "" };
    let answers = [
        Ok(version + simulated),
        each(&|gpu| {
            let (major, minor) = gpu.compute_capability()?;
            Ok(format!("{} (sm_{major}{minor})", gpu.name()?))
        }),
        each(&|gpu| {
            let (free, total) = gpu.memory()?;
            Ok(format!("{} free of {}", Human(free), Human(total)))
        }),
        each(&|gpu| Ok(Human(gpu.granularity()).to_string())),
        each(&|gpu| yes(gpu.page_mapping())),
        Err("the driver interface does not tell; see the limits above".to_string()),
        each(&|gpu| yes(gpu.pools())),
    ];
    Ok(ASKED.iter().zip(answers).map(|(name, answer)| Fact::new("driver", *name, answer)).collect())
}
