"""PyTorch: the sequences of blockyard-gpu-check on PyTorch's allocator, as JSON for its --others.

usage: gpu-check-pytorch.py FOLDER OUTPUT
"""

import json
import os
import pathlib
import subprocess
import sys
import time


def run(folder, conf):
    import torch

    torch.cuda.init()
    stream = torch.cuda.current_stream().cuda_stream
    device = torch.cuda.current_device()
    runs = []
    for path in sorted(pathlib.Path(folder).glob("*.csv")):
        events = []
        for line in path.read_text().splitlines():
            kind, ident, *rest = line.split(",")
            events.append((int(ident), int(rest[0]) if kind == "a" else None))
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        nanos, failure, live = [], None, {}
        try:
            for _ in range(2):
                begun = time.perf_counter_ns()
                for ident, size in events:
                    if size is None:
                        torch.cuda.caching_allocator_delete(live.pop(ident))
                    else:
                        live[ident] = torch.cuda.caching_allocator_alloc(size, device, stream)
                nanos.append((time.perf_counter_ns() - begun) / len(events))
        except torch.OutOfMemoryError:
            failure = "out of memory"
            for address in live.values():
                torch.cuda.caching_allocator_delete(address)
        name = f"PyTorch {torch.__version__}" + (f", {conf}" if conf else "")
        runs.append({
            "sequence": path.stem,
            "allocator": name,
            "nanos": nanos if failure is None else [0.0, 0.0],
            "reserved": torch.cuda.max_memory_reserved(),
            "failure": failure,
        })
    return runs


def main():
    if sys.argv[1] == "--one":
        json.dump(run(sys.argv[2], os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")), sys.stdout)
        return
    folder, output = sys.argv[1:3]
    runs = []
    # The setting is read once in a process.
    for conf in ["", "expandable_segments:True"]:
        env = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=conf)
        if not conf:
            del env["PYTORCH_CUDA_ALLOC_CONF"]
        done = subprocess.run(
            [sys.executable, __file__, "--one", folder], env=env, capture_output=True, text=True
        )
        if done.returncode != 0:
            sys.exit(f"PyTorch did not run: {done.stderr.strip().splitlines()[-1:]}")
        runs += json.loads(done.stdout)
    pathlib.Path(output).write_text(json.dumps(runs, indent=1))


main()
