#!/bin/sh
# Runs the settings that `blockyard explain` proves by replay on PyTorch's own allocator, for every snapshot with an
# out-of-memory, and prints a table in Markdown. Exits 1 if one that was proved fails there, or if the failure does not
# come about there under the settings that were in force.
#
#   tools/verify-fixes.sh SNAPSHOT...
#
#   TORCH_REPLAY  a command that plays the trace named by its last argument (a,id,bytes,stream lines) through PyTorch's
#                 caching allocator on a simulated device of FAKE_GPU_MEM_BYTES bytes under PYTORCH_CUDA_ALLOC_CONF, and
#                 prints a line of JSON with "oom", "peak_reserved", "num_device_alloc" and "num_device_free"
#   TORCH_TRAIN   optional: a command that trains again, on such a device, with the arguments that RUNS names, and
#                 prints a line of JSON with "oom" (null if it went well) and "peak_reserved"
#   RUNS          optional: a file with a line for each snapshot to be trained again: its name without suffixes, a tab,
#                 the arguments
#   BLOCKYARD     the binary (target/release/blockyard)
#
# Needs jq. Only settings of PyTorch are run; the best of each family, and those that were replayed and are not enough.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
blockyard=${BLOCKYARD:-$here/target/release/blockyard}
: "${TORCH_REPLAY:?a command that plays a trace through the allocator of PyTorch}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0

gib() { # bytes
    awk -v bytes="$1" 'BEGIN { printf "%.2f GiB", bytes / 1073741824 }'
}
word() { # true or false: whether it ran out of memory
    if [ "$1" = true ]; then echo fails; else echo completes; fi
}
replayed() { # settings: result and peak of the replay, and its driver calls
    FAKE_GPU_MEM_BYTES=$capacity PYTORCH_CUDA_ALLOC_CONF=$1 sh -c "$TORCH_REPLAY \"\$1\"" - "$work/trace.csv" \
        2>/dev/null | grep -m 1 '^{' >"$work/replay.json"
    jq -r '[(.oom | tostring), .peak_reserved, .num_device_alloc + .num_device_free] | @tsv' "$work/replay.json"
}
trained() { # settings: result and peak of the training, or dashes
    arguments=$(awk -F '\t' -v name="$name" '$1 == name { print $2 }' "${RUNS:-/dev/null}")
    if [ -z "${TORCH_TRAIN:-}" ] || [ -z "$arguments" ]; then
        echo "-"
        return
    fi
    FAKE_GPU_MEM_BYTES=$capacity PYTORCH_CUDA_ALLOC_CONF=$1 sh -c "$TORCH_TRAIN $arguments" 2>/dev/null |
        grep -m 1 '^{' >"$work/train.json" || { echo "not run"; return; }
    out=$(jq -r '.oom != null' "$work/train.json")
    echo "$(word "$out"), $(gib "$(jq -r .peak_reserved "$work/train.json")")"
}

echo '| snapshot | settings | explain | PyTorch, the recording | PyTorch, the training again |'
echo '|---|---|---|---|---|'
for snapshot in "$@"; do
    name=$(basename "$snapshot" | sed 's/\.pickle.*//; s/\.json.*//')
    "$blockyard" explain --quiet --json "$snapshot" >"$work/explain.json"
    [ "$(jq .event "$work/explain.json")" != null ] || continue
    "$blockyard" convert --quiet "$snapshot" "$work/trace.csv" >/dev/null
    capacity=$(jq -r .capacity_bytes "$work/explain.json")
    class=$(jq -r .class "$work/explain.json")
    # What was in force, then each setting with what explain says of it.
    jq -r '["", "fails", "-"], (.fixes[] | select(.allocator == "same") |
        [.text, (if .completes then "completes" else "fails" end), (.peak_reserved_bytes // 0 | tostring)]) | @tsv' \
        "$work/explain.json" >"$work/list"
    while IFS="$(printf '\t')" read -r settings said peak; do
        [ -n "$peak" ] || { peak=$said; said=$settings; settings=; }
        found=$(replayed "$settings")
        out=$(echo "$found" | cut -f 1)
        theirs="$(word "$out"), $(gib "$(echo "$found" | cut -f 2)"), $(echo "$found" | cut -f 3) driver calls"
        again=-
        if [ "$said" = completes ] || [ -z "$settings" ]; then again=$(trained "$settings"); fi
        ours=$said
        [ "$peak" = "-" ] || ours="$said, $(gib "$peak")"
        if [ "$said" != "$(word "$out")" ]; then
            ours="**$ours**"
            wrong=1
        fi
        if [ -n "$settings" ]; then shown="\`$settings\`"; else shown="in force ($class)"; fi
        echo "| $name | $shown | $ours | $theirs | $again |"
    done <"$work/list"
done
exit $wrong
