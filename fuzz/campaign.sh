#!/usr/bin/env bash
# Every target (or those named) for so many seconds each, one after another: fuzz/campaign.sh 600 [TARGET...]
# The canary runs first and must fail. What is found lies in fuzz/artifacts/, new inputs in fuzz/target/found/.
set -uo pipefail
cd "$(dirname "$0")"
seconds=${1:?seconds for each target}
shift
targets=("${@:-}")
[ -n "${targets[0]}" ] || targets=(ffi_calls heap_inputs native_trace pickle replay settings tensor_views text_formats)
limits=(-rss_limit_mb=2048 -timeout=10 -print_final_stats=1)

fuzz() {
    local target=$1 found=target/found/$1
    shift
    mkdir -p "$found"
    cargo +nightly fuzz run "$target" "$found" "corpus/$target" -- "${limits[@]}" "$@"
}

if fuzz canary -max_total_time=60 -runs=100000000; then
    echo "the canary lives: this set-up finds nothing" >&2
    exit 1
fi
failed=0
for target in "${targets[@]}"; do
    fuzz "$target" -max_total_time="$seconds" || { echo "$target: a finding" >&2; failed=1; }
done
exit $failed
