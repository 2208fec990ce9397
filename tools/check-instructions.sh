#!/bin/sh
# Holds instruction counts to the recorded ones: a slower hot path shows without a clock.
#
#   tools/check-instructions.sh            more than 5 % above benches/instructions.tsv: exit 1
#   tools/check-instructions.sh --record   writes that file
#
# The counts are callgrind's and belong to the compiler that the file names: another one is told, not judged.
set -eu
cd "$(dirname "$0")/.."
kept=benches/instructions.tsv
command -v valgrind >/dev/null || { echo "skipped: valgrind is not installed"; exit 0; }
compiler=$(rustc --version)
now=$(mktemp)
trap 'rm -f "$now"' EXIT
{
    CONTENDERS="ours offset" tools/count-instructions.sh hit cut mixed
    CONTENDERS="counted borrowed address" tools/count-instructions.sh hit
    CONTENDERS="counted" tools/count-instructions.sh mixed
} | awk '$1 != "scene" { print $1 "\t" $2 "\t" $3 }' >"$now"
if [ "${1:-}" = --record ]; then
    { echo "# $compiler"; cat "$now"; } >"$kept"
    cat "$kept"
    exit
fi
head -1 "$kept" | grep -qF "$compiler" || { echo "skipped: counted with $(head -1 "$kept"), this is $compiler"; exit 0; }
awk -F '\t' '
    /^#/ { next }
    NR == FNR { kept[$1 " " $2] = $3; next }
    { key = $1 " " $2; seen++
      verdict = $3 > 1.05 * kept[key] ? "WORSE" : "ok"
      if (verdict == "WORSE") worse = 1
      printf "%-16s recorded %5d, now %5d  %s\n", key, kept[key], $3, verdict }
    END { exit worse || seen < length(kept) }' "$kept" "$now"
