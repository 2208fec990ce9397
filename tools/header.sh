#!/usr/bin/env bash
# Writes include/blockyard.h anew from src/ffi. A test of the same file fails where it is stale.
set -euo pipefail
cd "$(dirname "$0")/.."
BLOCKYARD_WRITE_HEADER=1 cargo test -p blockyard-ffi --test header -- --quiet
