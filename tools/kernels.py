#!/usr/bin/env python3
"""Kernels: compiles kernels/*.cu to PTX, and checks what is committed.

  tools/kernels.py            compile every source; write kernels/*.ptx (needs Linux on x86-64; fetches NVRTC)
  tools/kernels.py --check    each PTX is of the sources beside it (no network, nothing installed)
  tools/kernels.py --ptxas    --check, then ptxas assembles each PTX for every GPU below (fetches ptxas)
  tools/kernels.py --fresh    --check, then compile again and compare byte for byte (fetches NVRTC)

The tools come from PyPI into a virtual environment: $BLOCKYARD_KERNEL_TOOLS, or target/kernel-tools. What cannot be
fetched is skipped with a message, unless BLOCKYARD_KERNEL_TOOLS_REQUIRED=1.

A PTX begins with comments: the compiler, its options, the SHA-256 of each file that went in, and of the text below
the comments. NVRTC is the oldest we support on purpose: its version decides the PTX version, and so the oldest
driver that can load it.
"""

import ctypes
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "kernels"
NVRTC = "nvidia-cuda-nvrtc-cu11==11.8.89"
PTXAS = "nvidia-cuda-nvcc-cu12==12.9.86"
OPTIONS = ["--gpu-architecture=compute_75", "--std=c++17", "--fmad=false"]
GPUS = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]


class Unavailable(Exception):
    """A tool that cannot be had here."""


def sources():
    return sorted(KERNELS.glob("*.cu"))


def inputs(source):
    """The source and the headers that it includes, directly or not, in order of appearance."""
    found = [source]
    for path in found:
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
            if KERNELS / name not in found:
                found.append(KERNELS / name)
    return found


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def header(source, ptx):
    lines = [f"// compiler {NVRTC}", f"// options {' '.join(OPTIONS)}"]
    lines += [f"// source {path.name} sha256 {sha256(path.read_bytes())}" for path in inputs(source)]
    return "\n".join(lines + [f"// text sha256 {sha256(ptx.encode())}", ""])


def install(requirement):
    """The site-packages that hold exactly this package."""
    root = Path(os.environ.get("BLOCKYARD_KERNEL_TOOLS", ROOT / "target" / "kernel-tools"))
    place = root / requirement.replace("==", "-")
    if not (place / "complete").exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
            pip = [place / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install"]
            options = ["--quiet", "--no-deps", "--only-binary=:all:", "--retries=1", "--timeout=20"]
            subprocess.run([*pip, *options, requirement], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unavailable(f"{requirement} cannot be installed (see above; is PyPI in reach?)") from error
        (place / "complete").touch()
    return next(place.glob("lib/python*/site-packages"))


class Nvrtc:
    """The run-time compiler, called as a library: it needs no CUDA installation and no GPU."""

    def __init__(self):
        folder = install(NVRTC) / "nvidia" / "cuda_nvrtc" / "lib"
        library = next(path for path in sorted(folder.glob("libnvrtc.so*")))
        for path in folder.glob("libnvrtc-builtins.so*"):
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(library))

    def call(self, name, *arguments):
        return getattr(self.library, name)(*arguments)

    def text(self, program, what):
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.value.decode()

    def compile(self, source):
        """PTX of one source; headers are handed over as texts, so no path of this machine goes in."""
        headers = inputs(source)[1:]
        texts = (ctypes.c_char_p * len(headers))(*[path.read_bytes() for path in headers])
        names = (ctypes.c_char_p * len(headers))(*[path.name.encode() for path in headers])
        options = (ctypes.c_char_p * len(OPTIONS))(*[option.encode() for option in OPTIONS])
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), source.read_bytes(), source.name.encode(),
                  len(headers), texts, names)
        failed = self.call("nvrtcCompileProgram", program, len(OPTIONS), options)
        log = self.text(program, "ProgramLog").strip()
        if log:
            print(log, file=sys.stderr)
        if failed:
            sys.exit(f"{source.name}: NVRTC says {failed}")
        ptx = self.text(program, "PTX").strip("\n") + "\n"
        return header(source, ptx) + ptx


def write():
    compiler = Nvrtc()
    for source in sources():
        ptx = compiler.compile(source)
        source.with_suffix(".ptx").write_text(ptx)
        print(f"{source.stem}.ptx: {len(ptx)} bytes, {ptx.count('.entry')} kernels")


def complaints():
    """What is wrong with the committed PTX, from the files alone."""
    for source in sources():
        path = source.with_suffix(".ptx")
        if not path.exists():
            yield f"{path.name} is missing"
            continue
        lines = path.read_text().splitlines(keepends=True)
        above = next((place for place, line in enumerate(lines) if line.startswith("// text ")), 0) + 1
        if "".join(lines[:above]) != header(source, "".join(lines[above:])):
            yield f"{path.name} is not of the sources beside it"
    for path in KERNELS.glob("*.ptx"):
        if not path.with_suffix(".cu").exists():
            yield f"{path.name} has no source"


def check():
    found = list(complaints())
    if found:
        sys.exit("\n".join([*found, "run tools/kernels.py and commit what it writes"]))
    print(f"{len(sources())} PTX files agree with their sources")


def fresh():
    compiler = Nvrtc()
    stale = [s.name for s in sources() if compiler.compile(s) != s.with_suffix(".ptx").read_text()]
    if stale:
        sys.exit(f"compiles to other bytes than are committed: {', '.join(stale)}")
    print(f"{len(sources())} PTX files compile to the same bytes again")


def assemble_one(ptxas, source, gpu):
    """The most registers that a kernel takes. Kernels keep everything in registers: a spill is a complaint."""
    with tempfile.TemporaryDirectory() as folder:
        command = [ptxas, "-v", f"-arch={gpu}", source.with_suffix(".ptx"), "-o", Path(folder) / "cubin"]
        done = subprocess.run(command, capture_output=True, text=True)
    spills = re.findall(r"[1-9]\d* bytes (?:stack frame|spill)", done.stderr)
    if done.returncode or spills:
        sys.exit(f"{source.stem}.ptx for {gpu}: {', '.join(spills) or done.stdout + done.stderr}")
    return max(int(count) for count in re.findall(r"Used (\d+) registers", done.stderr))


def assemble():
    """Every PTX through ptxas for every GPU."""
    ptxas = install(PTXAS) / "nvidia" / "cuda_nvcc" / "bin" / "ptxas"
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for source in sources():
            registers = max(pool.map(lambda gpu: assemble_one(ptxas, source, gpu), GPUS))
            print(f"{source.stem}.ptx: accepted for {' '.join(GPUS)}, at most {registers} registers")


def main(arguments):
    steps = {"--check": [check], "--ptxas": [check, assemble], "--fresh": [check, fresh]}
    if arguments and (len(arguments) > 1 or arguments[0] not in steps):
        sys.exit(__doc__)
    try:
        for step in steps[arguments[0]] if arguments else [write]:
            step()
    except Unavailable as reason:
        if os.environ.get("BLOCKYARD_KERNEL_TOOLS_REQUIRED") == "1":
            sys.exit(str(reason))
        print(f"SKIPPED: {reason}")


main(sys.argv[1:])
