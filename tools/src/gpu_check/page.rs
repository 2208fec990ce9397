//! Page: what was checked and measured, as Markdown that can be sent to somebody.

use std::fmt::Write as _;

use blockyard::device::cuda::Gpu;
use blockyard::vocab::MIB;

use super::Options;
use super::checks::Check;
use super::costs::Row;
use super::sequences::Run;

/// The whole page.
pub fn write(
    gpu: &Gpu,
    options: &Options,
    checks: &[Check],
    costs: &[Row],
    runs: &[Run],
) -> String {
    let mut page = String::from("# blockyard on a GPU\n\n");
    page += &machine(gpu, options);
    page += "\n## Checks\n\n| check | | what it came to | seconds |\n|---|---|---|---:|\n";
    for check in checks {
        let (mark, text) = match &check.outcome {
            Ok(text) => ("passed", text),
            Err(text) => ("**FAILED**", text),
        };
        line(&mut page, &[check.name, mark, &cell(text), &format!("{:.2}", check.seconds)]);
    }
    page += &costs_of(costs);
    page += &sequences_of(runs);
    page
}

/// The driver first: a figure of a simulated one says nothing of a GPU.
fn machine(gpu: &Gpu, options: &Options) -> String {
    let driver = gpu.driver();
    let kind = if driver.is_simulated() {
        "**A SIMULATED DRIVER: there was no GPU. Times on this page are those of this machine's \
         processor and say nothing of any GPU.**"
    } else {
        "The driver does not say that it is simulated."
    };
    let mut text = format!("{kind}\n\n| | |\n|---|---|\n");
    let named = |result: Result<String, _>| {
        result.unwrap_or_else(|error: blockyard::device::cuda::CudaError| error.to_string())
    };
    let version = format!("{}.{}", driver.version() / 1000, driver.version() % 1000 / 10);
    let capability = gpu.compute_capability().map(|(major, minor)| format!("{major}.{minor}"));
    let memory = gpu
        .memory()
        .map(|(free, total)| format!("{} MiB, {} MiB of them free", total / MIB, free / MIB));
    let has = |yes: bool| if yes { "yes" } else { "no" }.to_string();
    let rows = [
        ("driver", driver.path().to_string()),
        ("CUDA that it can do", version),
        ("device", format!("{}: {}", gpu.ordinal(), named(gpu.name()))),
        ("compute capability", named(capability)),
        ("memory", named(memory)),
        ("used at most", format!("{} MiB", options.cap / MIB)),
        ("granularity", format!("{} KiB", gpu.granularity() / 1024)),
        ("pages", has(gpu.page_mapping())),
        ("the driver's own pools", has(gpu.pools())),
        ("blockyard", env!("CARGO_PKG_VERSION").to_string()),
        ("rounds", if options.quick { "quick" } else { "full" }.to_string()),
    ];
    for (name, value) in rows {
        line(&mut text, &[name, &cell(&value)]);
    }
    text
}

fn costs_of(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n## Driver calls\n\nMedian microseconds of one call, by the host's clock.\n\n\
         | MiB | AddressReserve | Create | Map | SetAccess | Unmap | Release | AddressFree \
         | cuMemAlloc | cuMemFree | cuMemAllocAsync | cuMemFreeAsync |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let mut cells = vec![row.mib.to_string()];
        match &row.pages {
            Some(Ok(p)) => cells.extend(
                [p.reserve, p.create, p.map, p.access, p.unmap, p.release, p.free].map(micros),
            ),
            missing => cells.extend(std::iter::repeat_n(why(missing.as_ref()), 7)),
        }
        match &row.segments {
            Ok(s) => cells.extend([s.alloc, s.free, s.alloc_async, s.free_async].map(micros)),
            Err(error) => cells.extend(std::iter::repeat_n(cell(error), 4)),
        }
        let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
        line(&mut text, &cells);
    }
    text + "\n`cuMemAllocAsync` and `cuMemFreeAsync` with a wait for their stream.\n"
}

fn sequences_of(runs: &[Run]) -> String {
    let mut text = String::from(
        "\n## The same requests to several allocators\n\nNanoseconds for each request, on one \
         thread, the first time and the second; peak MiB taken from the driver. PyTorch's times \
         include those of its Python interface.\n\n\
         | sequence | allocator | first ns | second ns | peak MiB |\n|---|---|---:|---:|---:|\n",
    );
    for run in runs {
        let (first, second, peak) = match &run.failure {
            Some(failure) => (cell(failure), String::new(), String::new()),
            None => (
                format!("{:.0}", run.nanos[0]),
                format!("{:.0}", run.nanos[1]),
                run.reserved.map_or_else(String::new, |bytes| (bytes / MIB).to_string()),
            ),
        };
        line(&mut text, &[&run.sequence, &run.allocator, &first, &second, &peak]);
    }
    text
}

fn line(text: &mut String, cells: &[&str]) {
    // Writing to a text cannot fail.
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn micros(nanos: u64) -> String {
    if nanos == 0 { "-".to_string() } else { format!("{:.1}", nanos as f64 / 1000.0) }
}

fn why<T>(missing: Option<&Result<T, String>>) -> String {
    missing.and_then(|result| result.as_ref().err()).map_or_else(|| "-".to_string(), |e| cell(e))
}

/// A text that does not end the cell it stands in.
fn cell(text: &str) -> String {
    text.replace('|', "/").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_cell_holds_any_text() {
        assert_eq!(super::cell("a | b\nc"), "a / b c");
        assert_eq!(super::micros(12_345), "12.3");
    }
}
