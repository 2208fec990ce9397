//! Checks: what must hold on every device; each ends well, or says in words what does not hold.

use std::sync::Arc;
use std::time::Instant;

use blockyard::allocator::Config;
use blockyard::device::cuda::{CudaConfig, CudaSubject, Gpu, SegmentSource};
use blockyard::device::laws::check_laws;
use blockyard::interop::{CudaAllocator, Patterns, Trial, Verdict, trial};
use blockyard::policy::presets;
use blockyard::vocab::MIB;

/// One check.
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// What it came to, in words.
    pub outcome: Result<String, String>,
    /// How long it took.
    pub seconds: f64,
}

/// How much memory the laws use: they fill it several times.
const LAWS_CAP: u64 = 256 * MIB;

/// Runs all checks.
pub fn run(gpu: &Arc<Gpu>, cap: u64, quick: bool) -> Vec<Check> {
    let laws_cap = Some(LAWS_CAP.min(cap));
    let direct = CudaConfig { cap: laws_cap, ..CudaConfig::default() };
    let whole = CudaConfig { no_pages: true, ..direct.clone() };
    let pooled = CudaConfig { segments: SegmentSource::Pool { keep: 0 }, ..direct.clone() };
    let mut checks = vec![
        check("laws of a device, segments and pages", || laws(gpu, &direct)),
        check("laws of a device, segments only", || laws(gpu, &whole)),
    ];
    if gpu.pools() {
        checks.push(check("laws of a device, segments from the driver's pool", || {
            laws(gpu, &pooled)
        }));
    }
    checks.push(check("kernels fill, and find what was changed", || kernels(gpu, cap)));
    for (name, preset) in [
        ("threads under preset blockyard", "blockyard"),
        ("threads under preset blockyard-native", "blockyard-native"),
        ("threads under preset pytorch", "pytorch"),
        ("threads under preset pytorch-expandable", "pytorch-expandable"),
    ] {
        checks.push(check(name, || threads(gpu, preset, cap, quick)));
    }
    checks.push(check("all memory went back to the driver", || nothing_left(gpu, cap)));
    checks
}

fn check(name: &'static str, run: impl FnOnce() -> Result<String, String>) -> Check {
    crate::fail::say(format_args!("blockyard-gpu-check: {name}"));
    let begun = Instant::now();
    let outcome = run();
    Check { name, outcome, seconds: begun.elapsed().as_secs_f64() }
}

fn laws(gpu: &Arc<Gpu>, config: &CudaConfig) -> Result<String, String> {
    // A device that cannot be made is found before the laws ask for one that must be there.
    CudaSubject::new(gpu, config.clone()).map_err(|error| error.to_string())?;
    check_laws(|| match CudaSubject::new(gpu, config.clone()) {
        Ok(subject) => Box::new(subject),
        Err(error) => panic!("{error}"),
    })?;
    Ok("hold".to_string())
}

fn allocator(gpu: &Gpu, preset: &str, cap: u64) -> Result<CudaAllocator, String> {
    let policy = presets::named(preset).ok_or_else(|| format!("no preset {preset}"))?;
    let device = CudaConfig { cap: Some(cap), ..CudaConfig::default() };
    CudaAllocator::open_with(gpu.ordinal(), device, Config::with_policy(policy))
        .map_err(|error| error.to_string())
}

fn kernels(gpu: &Gpu, cap: u64) -> Result<String, String> {
    let allocator = allocator(gpu, "blockyard", cap)?;
    let patterns = Patterns::load(&allocator).map_err(|error| error.to_string())?;
    let said = |error| format!("{error:?}");
    let stream = allocator.context().new_stream().map_err(said)?;
    let told = |error: blockyard::allocator::AllocError| error.to_string();
    let mut verdict =
        Verdict::new(&stream, allocator.alloc(&stream, 2).map_err(told)?).map_err(said)?;
    let mut buffer = allocator.alloc::<u8>(&stream, 3 * MIB as usize + 5).map_err(told)?;
    let words = |error: blockyard::device::cuda::CudaError| error.to_string();
    patterns.fill(&stream, &mut buffer, 7).map_err(words)?;
    patterns.verify(&stream, &buffer, 7, &mut verdict).map_err(words)?;
    if let Some(wrong) = verdict.wait(&stream).map_err(said)? {
        return Err(format!("{} words are wrong in a buffer that was just filled", wrong.words));
    }
    patterns.verify(&stream, &buffer, 8, &mut verdict).map_err(words)?;
    match verdict.wait(&stream).map_err(said)? {
        Some(wrong) => Ok(format!("{} words of another pattern were told apart", wrong.words)),
        None => Err("another pattern was not told apart".to_string()),
    }
}

fn threads(gpu: &Gpu, preset: &str, cap: u64, quick: bool) -> Result<String, String> {
    let allocator = allocator(gpu, preset, cap)?;
    let (threads, steps) = if quick { (4, 150) } else { (8, 4000) };
    // All threads together ask for somewhat more than there is, now and then.
    let largest = (cap / threads / 4).clamp(MIB, 64 * MIB);
    let tally = trial(&allocator, Trial { threads, steps, held: 24, largest, seed: 1 })?;
    Ok(format!(
        "{} buffers, {} checked, {} of them by another thread; {} requests found no memory",
        tally.served, tally.checked, tally.passed_on, tally.ran_out
    ))
}

fn nothing_left(gpu: &Arc<Gpu>, cap: u64) -> Result<String, String> {
    let said = |error: blockyard::device::cuda::CudaError| error.to_string();
    let (before, _) = gpu.memory().map_err(said)?;
    threads(gpu, "blockyard", cap, true)?;
    let (after, _) = gpu.memory().map_err(said)?;
    // Another process may take or give back meanwhile; that cannot be told apart.
    match before.checked_sub(after) {
        None | Some(0) => Ok("as much is free as before".to_string()),
        Some(less) => Err(format!("{less} bytes less are free than before")),
    }
}
