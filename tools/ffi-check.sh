#!/usr/bin/env bash
# The programs of ffi/tests/programs and the random calls under valgrind: no invalid access, no leak. Where there is no
# valgrind, the C and C++ programs under the compiler's AddressSanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --locked -p blockyard-ffi
library="${CARGO_TARGET_DIR:-$PWD/target}/debug"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export BLOCKYARD_DEVICE=sim:256MiB
watched=() flags=()
if command -v valgrind > /dev/null; then
    watched=(valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite
        --errors-for-leak-kinds=definite)
else
    echo 'no valgrind: AddressSanitizer'
    flags=(-fsanitize=address)
fi
compile() {
    "$@" -O1 -g -pthread "${flags[@]}" -I include -L "$library" -lblockyard "-Wl,-rpath,$library"
}
compile cc -std=c11 ffi/tests/programs/program.c -o "$scratch/c"
compile c++ -std=c++17 ffi/tests/programs/program.cpp -o "$scratch/cpp"
"${watched[@]}" "$scratch/c" "$scratch"
"${watched[@]}" "$scratch/cpp"
if [ ${#watched[@]} -gt 0 ]; then
    test=$(cargo test --locked -p blockyard-ffi --test calls --no-run --message-format=json \
        | sed -n 's/.*"executable":"\([^"]*calls-[^"]*\)".*/\1/p')
    BLOCKYARD_CALLS="${BLOCKYARD_CALLS:-5000}" "${watched[@]}" "$test" --test-threads 1
fi
