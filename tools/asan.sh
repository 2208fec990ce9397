#!/usr/bin/env bash
# AddressSanitizer over what has `unsafe` or threads below it. Needs a nightly toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/asan" ASAN_OPTIONS=detect_leaks=1
cargo +nightly test --locked -p blockyard --target "$target" --lib --test stress --test conformance \
    --test conformance_errors --test allocator_reports --test laws "$@"
