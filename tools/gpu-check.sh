#!/usr/bin/env bash
# GPU check: everything that a machine with a GPU can tell about blockyard, as one page of Markdown.
#
#   tools/gpu-check.sh [OUTPUT.md] [options of blockyard-gpu-check, such as --cap 16GiB or --driver LIBRARY]
#
# With cargo and the sources it builds the binary. Without, it takes blockyard-gpu-check from beside itself: copy that
# and this script (and gpu-check-pytorch.py, to compare with PyTorch) to the machine; nothing else is needed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

output=gpu-results.md
if [[ $# -gt 0 && $1 != -* ]]; then
  output=$1
  shift
fi

binary=$here/blockyard-gpu-check
if command -v cargo >/dev/null && [[ -f $here/Cargo.toml ]]; then
  root=$(dirname "$here")
  cargo build --release --locked --manifest-path "$root/Cargo.toml" -p blockyard-tools --bin blockyard-gpu-check
  binary=${CARGO_TARGET_DIR:-$root/target}/release/blockyard-gpu-check
elif [[ ! -x $binary ]]; then
  echo "gpu-check: neither cargo with the sources nor a binary $binary" >&2
  exit 2
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
others=()
if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  quick=()
  for option in "$@"; do [[ $option == --quick ]] && quick=(--quick); done
  "$binary" --write-sequences "$scratch/sequences" "${quick[@]}"
  if python3 "$here/gpu-check-pytorch.py" "$scratch/sequences" "$scratch/pytorch.json"; then
    others=(--others "$scratch/pytorch.json")
  fi
else
  echo "gpu-check: no PyTorch with a GPU here; its column is left out" >&2
fi

status=0
"$binary" --output "$output" "${others[@]}" "$@" || status=$?
[[ -f $output ]] && echo "gpu-check: wrote $output"
exit $status
