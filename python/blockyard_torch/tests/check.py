"""Check: PyTorch trains with blockyard, its figures hold, and an out-of-memory is an exception and not the end.

    check.py behave global|pool        what must hold, as assertions
    check.py train MODE MODEL STEPS    one model: a line of JSON
    check.py table                     every model in every mode, as a table

Variables: BLOCKYARD_LIBRARY and BLOCKYARD_SHIM as always; BLOCKYARD_CHECK_RUN, a command to put before python's (a
simulated GPU's, for example); BLOCKYARD_CHECK_STEPS; BLOCKYARD_CHECK_MODELS, names separated by semicolons.
"""

import contextlib
import json
import os
import shlex
import subprocess
import sys

MODES = ("native", "native, expandable", "blockyard", "blockyard as pool")


def scope(mode):
    import blockyard_torch

    if mode == "blockyard":
        blockyard_torch.install()
    if mode == "blockyard as pool":
        return blockyard_torch.use_mem_pool(blockyard_torch.mem_pool(), all_threads=True)
    return contextlib.nullcontext()


def agree():
    """blockyard's statistics against a recount of its blocks. Says what differs."""
    import blockyard_torch

    stats, counted = blockyard_torch.memory_stats(), blockyard_torch.recount()
    assert isinstance(stats, dict), stats
    differs = {key: (stats[key], value) for key, value in counted.items() if stats[key] != value}
    assert not differs, differs
    return stats


def train(mode, name, steps):
    import torch

    import models

    with scope(mode):
        done = models.train(name, steps)
        torch.cuda.synchronize()
        stats = torch.cuda.memory_stats()
        if mode.startswith("blockyard"):
            ours = agree()
            if mode == "blockyard":
                theirs = {key: value for key, value in stats.items() if key in ours}
                assert all(ours[key] == value for key, value in theirs.items()), "torch.cuda.memory_stats differs"
                segments = torch.cuda.memory_snapshot()
                total = sum(segment["total_size"] for segment in segments)
                assert total == stats["reserved_bytes.all.current"], (total, stats["reserved_bytes.all.current"])
            reserved = ours["reserved_bytes.all.peak"]
        else:
            reserved = stats["reserved_bytes.all.peak"]
        print(json.dumps({
            "mode": mode, "model": name, "steps": done, "peak_reserved": reserved,
            "peak_allocated": stats["allocated_bytes.all.peak"], "allocations": stats["allocation.all.allocated"],
        }))


def behave(mode):
    import torch

    import blockyard_torch
    import models

    with scope(mode):
        models.train("transformer-small", 2)
        agree()
        caught = None
        try:
            torch.empty(1 << 46, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            caught = str(error)
        assert caught is not None, "an impossible request was served"
        if mode == "blockyard":
            assert "cause: impossible-size" in caught, caught
            assert torch.cuda.memory_stats()["num_ooms"] == 1
        else:
            assert "impossible-size" in blockyard_torch.last_report()
        held = []
        filled = None
        while filled is None:
            try:
                held.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError as error:
                filled = str(error)
        assert len(held) > 0 and all(tensor.data_ptr() != 0 for tensor in held)
        del held
        models.train("transformer-small", 2)
        stats = agree()
        before = stats["reserved_bytes.all.current"]
        if mode == "blockyard":
            torch.cuda.empty_cache()
        blockyard_torch.reset_peak_memory_stats()
        assert blockyard_torch.max_memory_reserved() == blockyard_torch.memory_reserved()
        assert not any(isinstance(value, blockyard_torch.Unsupported) for _, value in blockyard_torch.support()[:8])
        if mode == "blockyard":
            pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(pool):
                inside = torch.empty(3 << 20, device="cuda")
            assert {segment["segment_pool_id"] for segment in torch.cuda.memory_snapshot()} >= {pool.id}
            outside = torch.empty(3 << 20, device="cuda")
            side = torch.cuda.Stream()
            outside.record_stream(side)
            del inside, outside, pool
            agree()
            torch.cuda.set_per_process_memory_fraction(0.5)
            assert abs(torch.cuda.get_per_process_memory_fraction() - 0.5) < 0.01
            torch.cuda.set_per_process_memory_fraction(1.0)
    # A pool of PyTorch's keeps its segments while it is in use, and blockyard has a cache below that.
    torch.cuda.empty_cache()
    blockyard_torch.empty_cache()
    after = agree()["reserved_bytes.all.current"]
    assert after < before, (before, after)
    if mode == "blockyard as pool":
        try:
            with blockyard_torch.use_mem_pool(blockyard_torch.mem_pool()):
                torch.empty(1 << 46, dtype=torch.uint8, device="cuda")
            raise AssertionError("an impossible request was served")
        except torch.OutOfMemoryError as error:
            assert "blockyard: out of memory" in str(error), error
    print(f"{mode}: trained, failed, trained on, emptied: after {before} bytes {after}; the report:\n{filled}")


def one(*arguments):
    before = shlex.split(os.environ.get("BLOCKYARD_CHECK_RUN", ""))
    environment = dict(os.environ)
    if arguments[1] == "native, expandable":
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    command = [*before, sys.executable, __file__, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{arguments}: failed\n{done.stdout[-2000:]}{done.stderr[-6000:]}")
    return done.stdout


def table():
    import models

    steps = os.environ.get("BLOCKYARD_CHECK_STEPS", "6")
    names = [name for name in os.environ.get("BLOCKYARD_CHECK_MODELS", "").split(";") if name] or list(models.MODELS)
    print(f"Peak reserved in MiB after {steps} steps; in brackets, peak allocated.\n", flush=True)
    print("| model | " + " | ".join(MODES) + " |\n|---|" + "---|" * len(MODES), flush=True)
    for name in names:
        cells = []
        for mode in MODES:
            row = json.loads(one("train", mode, name, steps).splitlines()[-1])
            reserved, allocated = (row[key] / 2**20 for key in ("peak_reserved", "peak_allocated"))
            cells.append(f"{reserved:,.0f} ({allocated:,.0f})")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main():
    what, *rest = sys.argv[1:] or ["all"]
    if what == "behave":
        behave({"global": "blockyard", "pool": "blockyard as pool"}[rest[0]])
    elif what == "train":
        train(rest[0], rest[1], int(rest[2]))
    elif what == "table":
        table()
    elif what == "all":
        for mode in ("global", "pool"):
            print(one("behave", mode), flush=True)
        table()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
