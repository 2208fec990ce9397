#!/bin/sh
# Instructions for a pair of alloc and free, counted by callgrind: the same on a busy machine as on an idle one.
#
#   tools/count-instructions.sh [SCENE...]        CONTENDERS="ours rlsf offset tree" PAIRS=20000
#
# The difference of two runs is what the pairs cost without the preparation.
set -eu
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 3; }
cargo build --quiet --release --manifest-path benches/Cargo.toml --bin count
count=${CARGO_TARGET_DIR:-benches/target}/release/count
[ -x "$count" ] || { echo "$count was not built" >&2; exit 3; }
pairs=${PAIRS:-20000}
[ $# -gt 0 ] || set -- hit cut mixed

instructions() { # scene contender pairs
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$count" "$1" "$2" "$3" 2>&1 |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

printf '%-12s %-10s %s\n' scene contender 'instructions a pair'
for scene in "$@"; do
    for contender in ${CONTENDERS:-ours rlsf offset tree}; do
        few=$(instructions "$scene" "$contender" 1000)
        many=$(instructions "$scene" "$contender" $((1000 + pairs)))
        printf '%-12s %-10s %s\n' "$scene" "$contender" $(((many - few) / pairs))
    done
done
