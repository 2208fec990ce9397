#!/usr/bin/env bash
# Replays every PyTorch snapshot in a folder against its own recording and prints how many are address-exact.
#   tools/check-exact.sh FOLDER [BINARY]
set -euo pipefail
folder=${1:?usage: tools/check-exact.sh FOLDER [BINARY]}
binary=${2:-target/release/blockyard}
[ -x "$binary" ] || { echo "no binary at $binary: cargo build --release -p blockyard-tools" >&2; exit 2; }
exact=0 total=0 without=0
for file in "$folder"/*; do
  [ -f "$file" ] || continue
  total=$((total + 1))
  if message=$("$binary" replay "$file" --expect-exact --quiet 2>&1 >/dev/null); then
    exact=$((exact + 1))
  elif [[ $message == *"no history"* ]]; then
    total=$((total - 1)) without=$((without + 1))
  else
    echo "not exact: $file: ${message##*$'\n'}"
  fi
done
echo "$exact/$total address-exact, $without without history"
[ "$exact" = "$total" ]
