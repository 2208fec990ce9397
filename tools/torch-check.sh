#!/usr/bin/env bash
# PyTorch with blockyard as its allocator: what must hold, and peak reserved against PyTorch's own, as a table.
# Needs a Python with PyTorch and a GPU, or a simulated one. By variables:
#   BLOCKYARD_PYTHON       that Python (python3)
#   BLOCKYARD_CHECK_RUN    a command to put before it, such as one that sets up a simulated GPU (none)
#   BLOCKYARD_CHECK_STEPS, BLOCKYARD_CHECK_MODELS   see python/blockyard_torch/tests/check.py
#   BLOCKYARD_LIBRARY, BLOCKYARD_SHIM               built here unless they are given
set -euo pipefail
cd "$(dirname "$0")/.."
python="${BLOCKYARD_PYTHON:-python3}"
if [ -z "${BLOCKYARD_LIBRARY:-}" ]; then
    cargo build --release -p blockyard-ffi
    export BLOCKYARD_LIBRARY="${CARGO_TARGET_DIR:-$PWD/target}/release/libblockyard.so"
fi
export PYTHONPATH="$PWD/python/blockyard_torch${PYTHONPATH:+:$PYTHONPATH}"
if [ -z "${BLOCKYARD_SHIM:-}" ]; then
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    export BLOCKYARD_SHIM="$scratch/shim.so"
    "$python" -m blockyard_torch.build --out "$BLOCKYARD_SHIM"
fi
BLOCKYARD_CHECK_RUN="${BLOCKYARD_CHECK_RUN:-}" "$python" python/blockyard_torch/tests/check.py "$@"
