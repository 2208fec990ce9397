#!/bin/sh
# Makes a stand-in for the CUDA driver in a folder: a libcuda.so without code that needs the recorder, then the true
# driver. Programs that look for "libcuda.so" at run time, with the folder first in LD_LIBRARY_PATH, find the recorder's
# functions first and all others behind them. Usage: stand-in.sh libblockyard_preload.so FOLDER
set -eu
recorder=$1
folder=$2
mkdir -p "$folder"
cp "$recorder" "$folder/libblockyard_preload.so"
empty=$(mktemp -d)
trap 'rm -r "$empty"' EXIT
# Only a name to link against: the true driver is found when the program runs.
"${CC:-cc}" -shared -o "$empty/libcuda.so.1" -Wl,-soname,libcuda.so.1 -x c /dev/null
"${CC:-cc}" -shared -o "$folder/libcuda.so" -x c /dev/null -x none -Wl,-soname,libcuda.so -Wl,--no-as-needed \
    -Wl,-rpath,'$ORIGIN' "$folder/libblockyard_preload.so" "$empty/libcuda.so.1"
