#!/bin/sh
# What a pair of alloc and free costs here and in PyTorch's own allocator, the two run in turn; and an operation of
# traces. Prints medians of processor time and their ratios, ours to PyTorch's: below 1 ours is cheaper.
#
#   tools/against-pytorch-bench.sh [TRACE.csv | TRACE.csv.zst]...
#
#   TORCH_BENCH   a command that runs PyTorch's caching allocator, without Python, and prints lines of JSON with "bench"
#                 and "cpu_ns_median" (nanoseconds of processor time a pair), for the scenes named below: a hit of 512 B,
#                 1 MiB, 16 MiB (raw_alloc_with_stream, raw_delete), random mixes, two threads
#   TORCH_REPLAY  a command that plays the trace named by its last argument through the same allocator and prints
#                 "cpu_ns_per_op" on its first line
#   ROUNDS        how often each side is run (3)
#
# Either side needs no GPU if the driver is simulated; ours always does. Without the commands only our figures are
# printed. Run it on an idle machine, or trust only the ratios.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
cargo build --quiet --release --manifest-path "$here/benches/Cargo.toml" \
    --bin trace --bench allocator --bench contention
built=${CARGO_TARGET_DIR:-$here/benches/target}/release
newest() { # name: the newest benchmark program of that name
    ls -t "$built/deps/$1"-* | grep -v '\.d$' | head -n 1
}
allocator=$(newest allocator)
contention=$(newest contention)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/ours" && : >"$work/theirs"

samples() { # JSON lines -> name, tab, median
    sed -n 's/.*"bench":"\([^"]*\)".*"cpu_ns_median":\([0-9.]*\).*/\1\t\2/p'
}
operations() { # name: JSON lines of a replay -> name, tab, nanoseconds an operation
    sed -n 's/.*"cpu_ns_per_op":\([0-9.]*\).*/'"$1"'\t\1/p' | head -n 1
}

for round in $(seq "${ROUNDS:-3}"); do
    echo "round $round" >&2
    ROUNDS=5 "$allocator" --json 2>/dev/null | samples >>"$work/ours"
    ROUNDS=5 "$contention" --json 2>/dev/null | samples >>"$work/ours"
    [ -z "${TORCH_BENCH:-}" ] || sh -c "$TORCH_BENCH" 2>/dev/null | samples >>"$work/theirs"
done
for trace in "$@"; do
    name=$(basename "$trace" .zst)
    # The marker of the traces for a program that empties its cache.
    case $trace in *.zst) zstd -dcq "$trace" ;; *) cat "$trace" ;; esac |
        sed 's/^m,empty_cache.*/e/' >"$work/trace.csv"
    for round in $(seq "${ROUNDS:-3}"); do
        for buffers in counted borrowed; do
            "$built/trace" --repeat 5 "$work/trace.csv" | grep '"preset":"blockyard"' |
                grep "\"$buffers\"" | operations "$name, $buffers" >>"$work/ours"
        done
        [ -z "${TORCH_REPLAY:-}" ] ||
            sh -c "$TORCH_REPLAY \"\$1\"" - "$work/trace.csv" 2>/dev/null |
            operations "$name" >>"$work/theirs"
    done
    printf '%s\t%s\t0.10\n' "$name, counted" "$name" "$name, borrowed" "$name" >>"$work/pairs"
done

{
    for size in '512 B:512' '1 MiB:1048576' '16 MiB:16777216'; do
        for how in '' ', borrowed' ', by address'; do
            printf 'hit %s%s\tsingle_hit_%sB\t0.20\n' "${size%:*}" "$how" "${size#*:}"
        done
    done
    printf '%s\t%s\t%s\n' \
        'mix of 1000 to 64 MiB' random_mix_live1000 0.10 \
        'mix of 10000 to 4 MiB' random_mix_live10000 0.10 \
        '2 threads, 2 streams, hit' 2threads_2streams_hit_1MiB 0.20 \
        '2 threads, 1 stream, hit' 2threads_1stream_hit_1MiB 0.20 \
        '2 threads, 2 streams, mix of 500' 2threads_2streams_random_live500 0.10
    [ ! -f "$work/pairs" ] || cat "$work/pairs"
} | awk -F '\t' -v ours="$work/ours" -v theirs="$work/theirs" '
    function load(file, into,    row, count) {
        while ((getline row < file) > 0) {
            split(row, field, "\t")
            into[field[1], ++count[field[1]]] = field[2] + 0
            into[field[1]] = count[field[1]]
        }
    }
    function median(of, name,    n, i, j, value, sorted) {
        n = of[name]
        for (i = 1; i <= n; i++) {
            value = of[name, i]
            for (j = i - 1; j > 0 && sorted[j] > value; j--) sorted[j + 1] = sorted[j]
            sorted[j + 1] = value
        }
        return sorted[int((n + 1) / 2)]
    }
    BEGIN {
        load(ours, own); load(theirs, peer)
        print "| scene | ours, ns | PyTorch, ns | ratio | aim | met |"
        print "|---|---|---|---|---|---|"
    }
    !($1 in own) { next }
    !($2 in peer) { printf "| %s | %.1f | | | | |\n", $1, median(own, $1); next }
    {
        mine = median(own, $1); other = median(peer, $2); ratio = mine / other
        met = ratio <= $3 + 0 ? "yes" : "no"
        printf "| %s | %.1f | %.1f | %.3f | %.2f | %s |\n", $1, mine, other, ratio, $3, met
    }'
