"""Build: the C++ shim, against the headers of the PyTorch that is installed.

    python -m blockyard_torch.build [--out PATH]

Needs g++ (or $CXX) and CUDA's headers (from $CUDA_HOME, or from the wheels that PyTorch depends on).
"""

import argparse
import os
import pathlib
import subprocess
import sys
import sysconfig

from . import _library

HERE = pathlib.Path(__file__).resolve().parent


def default_path():
    """Where `install()` looks: one file for each release of PyTorch."""
    import torch

    if os.environ.get("BLOCKYARD_SHIM"):
        return pathlib.Path(os.environ["BLOCKYARD_SHIM"])
    return HERE / f"_shim-{torch.__version__}.so"


def header_folder():
    """The folder of blockyard.h: named, beside this file, or the one of a checkout."""
    candidates = [os.environ.get("BLOCKYARD_INCLUDE"), HERE, HERE.parents[2] / "include"]
    for folder in filter(None, candidates):
        if (pathlib.Path(folder) / "blockyard.h").exists():
            return pathlib.Path(folder)
    raise RuntimeError("blockyard.h was not found: set BLOCKYARD_INCLUDE to its folder")


def cuda_folders():
    site = pathlib.Path(sysconfig.get_paths()["purelib"])
    named = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [pathlib.Path(home) / "include" for home in named if home]
    folders += sorted(site.glob("nvidia/*/include"))
    return [folder for folder in folders if folder.is_dir()]


def build(out=None):
    import torch
    from torch.utils import cpp_extension

    out = pathlib.Path(out) if out else default_path()
    library = pathlib.Path(_library.path())
    torch_lib = pathlib.Path(torch.__file__).parent / "lib"
    include = [header_folder(), *map(pathlib.Path, cpp_extension.include_paths()), *cuda_folders()]
    new_abi = int(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True))
    command = [
        os.environ.get("CXX", "g++"), "-std=c++20", "-O2", "-fPIC", "-shared", "-w",
        f'-DBLOCKYARD_TORCH_VERSION="{torch.__version__}"',
        f"-D_GLIBCXX_USE_CXX11_ABI={new_abi}",
        *[f"-I{folder}" for folder in include],
        str(HERE / "shim.cpp"), "-o", str(out),
        f"-L{torch_lib}", "-lc10", "-lc10_cuda", "-ltorch_cpu", "-ltorch_cuda",
        f"-L{library.parent}", f"-l:{library.name}",
        f"-Wl,-rpath,{torch_lib}:{library.parent}", "-Wl,--allow-shlib-undefined",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"the shim could not be built:\n{' '.join(command)}\n{done.stderr[-4000:]}")
    return out


def main():
    parser = argparse.ArgumentParser(description="Builds blockyard's shim for the PyTorch that is installed.")
    parser.add_argument("--out", help="where to write it (default: beside this module)")
    print(build(parser.parse_args().out))


if __name__ == "__main__":
    sys.exit(main())
