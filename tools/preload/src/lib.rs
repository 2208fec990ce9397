//! Preload: records the CUDA allocations of a program that knows nothing of it.
//!
//! Owns functions under the names of CUDA's allocation calls, which call through to the true ones and write down what
//! came of it. Asked by whatever program it is loaded into. Never changes an argument or an answer, and never stops the
//! program: what goes wrong here is one line on the standard error stream. `docs/preload.md` says how to use it, and
//! what it cannot see.
//!
//! | file | what |
//! |---|---|
//! | `real` | the true functions, found at the first call |
//! | `record` | events so far; plain data, no unsafe code |
//! | `write` | where the trace goes, and when |
//! | `observe` | what a call came to, told to the record |
//! | `driver`, `runtime` | the calls of `libcuda` and `libcudart` |
//! | `lookup` | driver functions that programs look up at run time |
#![allow(unsafe_code, non_snake_case)]

mod driver;
mod lookup;
mod observe;
mod real;
mod record;
mod runtime;
mod write;
