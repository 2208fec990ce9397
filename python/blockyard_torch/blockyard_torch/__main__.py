"""Runner: any program with blockyard as its allocator, without a change to it.

    python -m blockyard_torch [--pool] [--report FILE] program.py [arguments]

With --pool blockyard is the source of a pool that all requests go to, else PyTorch's allocator.
"""

import argparse
import contextlib
import json
import runpy
import sys

import blockyard_torch


def main():
    parser = argparse.ArgumentParser(prog="python -m blockyard_torch")
    parser.add_argument("--pool", action="store_true", help="as the source of a pool's segments")
    parser.add_argument("--report", help="where to write the statistics of the end, as JSON")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.pool:
        scope = blockyard_torch.use_mem_pool(blockyard_torch.mem_pool(), all_threads=True)
    else:
        blockyard_torch.install()
        scope = contextlib.nullcontext()
    sys.argv = [options.program, *options.arguments]
    with scope:
        try:
            runpy.run_path(options.program, run_name="__main__")
        finally:
            if options.report:
                report = {"memory_stats": blockyard_torch.memory_stats(), "recount": blockyard_torch.recount()}
                with open(options.report, "w") as file:
                    json.dump(report, file)


if __name__ == "__main__":
    main()
