#!/usr/bin/env bash
# Explores every interleaving of the allocator's shell. The bounds are here: at most three preemptions an execution.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-3}" LOOM_MAX_BRANCHES="${LOOM_MAX_BRANCHES:-20000}"
cargo test --locked -p blockyard --release --test loom -- --test-threads=1
