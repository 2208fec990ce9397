"""blockyard as PyTorch's CUDA memory allocator.

    import blockyard_torch
    blockyard_torch.install()                     # before anything is on the GPU

or as the source of one pool's segments, with PyTorch's own cache on top:

    pool = blockyard_torch.mem_pool()
    with blockyard_torch.use_mem_pool(pool):
        ...

Settings come from the variable BLOCKYARD_CONF, the library from BLOCKYARD_LIBRARY or from beside this file. Functions
that PyTorch has under the same name mean the same, of blockyard. None of those that are polled raises: what cannot be
known is an `Unsupported`, which counts as 0 and says why.
"""

import contextlib
import ctypes
import functools
import json
import pathlib

from . import _library
from ._library import BlockyardError

__all__ = [
    "BlockyardError", "Unsupported", "allocator", "empty_cache", "install", "is_installed", "last_report",
    "max_memory_allocated", "max_memory_reserved", "mem_pool", "memory_allocated", "memory_reserved", "memory_stats",
    "memory_summary", "record_memory_history", "recount", "reset_accumulated_memory_stats", "reset_peak_memory_stats", "settings",
    "set_per_process_memory_fraction", "snapshot", "support", "support_table", "tag", "use_mem_pool",
    "largest_possible_allocation", "write_snapshot", "write_trace",
]

_installed = None


class Unsupported(int):
    """A figure that cannot be given: 0, with the reason."""

    def __new__(cls, reason):
        self = super().__new__(cls, 0)
        self.reason = reason
        return self

    def __repr__(self):
        return f"unsupported: {self.reason}"

    __str__ = __repr__


def _polled(call):
    """A figure or an `Unsupported`: whoever polls statistics must not be stopped by them."""

    @functools.wraps(call)
    def polled(*arguments, **named):
        try:
            return call(*arguments, **named)
        except Exception as error:  # noqa: BLE001: any reason is a reason
            return Unsupported(str(error).splitlines()[0] if str(error) else type(error).__name__)

    return polled


def _device(device):
    if device is None:
        import torch

        return torch.cuda.current_device() if torch.cuda.is_available() else 0
    if isinstance(device, int):
        return device
    import torch

    index = torch.device(device).index
    return torch.cuda.current_device() if index is None else index


def allocator(device=None):
    """The number of a device's allocator in the C interface; the allocator is created if it is not there yet."""
    out = ctypes.c_uint64()
    _library.check(_library.load().blockyard_torch_allocator(ctypes.c_int(_device(device)), ctypes.byref(out)))
    return out.value


# ---- as PyTorch's allocator ----


def install():
    """Makes blockyard the allocator of the whole process. Before anything is on the GPU: PyTorch refuses later.

    Needs the C++ shim (`python -m blockyard_torch.build`). Without it PyTorch would not look at a request that failed
    and go on with a tensor that has no memory, so this refuses.
    """
    global _installed
    import torch

    from .build import default_path

    _library.load()
    shim = default_path()
    if not pathlib.Path(shim).exists():
        raise RuntimeError(
            f"blockyard's shim for PyTorch {torch.__version__} is not built ({shim}): run `python -m "
            "blockyard_torch.build`. Without it an allocation that fails would become a tensor without memory. "
            "As a pool's source, blockyard_torch.mem_pool(), it works without."
        )
    library = ctypes.PyDLL(str(shim), mode=ctypes.RTLD_GLOBAL)
    for call in ("blockyard_shim_install", "blockyard_shim_torch_version"):
        getattr(library, call).restype = ctypes.c_char_p
    built_for = library.blockyard_shim_torch_version().decode()
    if built_for != torch.__version__:
        raise RuntimeError(f"the shim was built for PyTorch {built_for}, this is {torch.__version__}: build it again")
    why = library.blockyard_shim_install()
    if why is not None:
        raise RuntimeError("blockyard could not be installed: " + why.decode(errors="replace").splitlines()[0])
    _installed = library


def is_installed():
    """Whether blockyard is the allocator of the whole process."""
    return _installed is not None


def mem_pool():
    """A `torch.cuda.MemPool` whose segments come from blockyard."""
    import torch

    library = _library.load()
    address = lambda call: ctypes.cast(call, ctypes.c_void_p).value  # noqa: E731
    source = torch._C._cuda_customAllocator(address(library.blockyard_torch_alloc), address(library.blockyard_torch_free))
    pool = torch.cuda.MemPool(source)
    pool._blockyard_source = source
    return pool


@contextlib.contextmanager
def use_mem_pool(pool, device=None, all_threads=False):
    """`torch.cuda.use_mem_pool`; an out-of-memory in it carries blockyard's report.

    PyTorch's own sends this thread's requests to the pool, so not those that a backward pass makes on its threads;
    `all_threads` sends those of all.
    """
    import torch

    with _all_to_pool(pool, _device(device)) if all_threads else torch.cuda.use_mem_pool(pool, device):
        try:
            yield pool
        except torch.OutOfMemoryError as error:
            report = last_report(device)
            if not report or "blockyard: " in str(error):
                raise
            raise torch.OutOfMemoryError(f"{error}\nblockyard: {report}") from error


@contextlib.contextmanager
def _all_to_pool(pool, device):
    import torch

    torch._C._cuda_beginAllocateToPool(device, pool.id)
    try:
        yield
    finally:
        torch._C._cuda_endAllocateToPool(device, pool.id)
        torch._C._cuda_releasePool(device, pool.id)


# ---- figures, under PyTorch's names ----


@_polled
def memory_stats(device=None):
    """`torch.cuda.memory_stats`: PyTorch's flat keys, and blockyard's."""
    return _library.stats(allocator(device))


@_polled
def _stat(key, device):
    return _library.stats(allocator(device))[key]


def memory_allocated(device=None):
    """`torch.cuda.memory_allocated`."""
    return _stat("allocated_bytes.all.current", device)


def max_memory_allocated(device=None):
    """`torch.cuda.max_memory_allocated`."""
    return _stat("allocated_bytes.all.peak", device)


def memory_reserved(device=None):
    """`torch.cuda.memory_reserved`."""
    return _stat("reserved_bytes.all.current", device)


def max_memory_reserved(device=None):
    """`torch.cuda.max_memory_reserved`."""
    return _stat("reserved_bytes.all.peak", device)


@_polled
def memory_summary(device=None):
    """`torch.cuda.memory_summary`, and where each pool's memory is."""
    return _library.text("blockyard_summary", allocator(device))


@_polled
def reset_peak_memory_stats(device=None):
    """`torch.cuda.reset_peak_memory_stats`."""
    _library.done("blockyard_reset_peak", allocator(device))


@_polled
def reset_accumulated_memory_stats(device=None):
    """`torch.cuda.reset_accumulated_memory_stats`."""
    _library.done("blockyard_reset_accumulated", allocator(device))


@_polled
def snapshot(device=None):
    """`torch.cuda.memory._snapshot`: segments, blocks, and the history if it is recorded."""
    return json.loads(_library.text("blockyard_snapshot", allocator(device)))


@_polled
def largest_possible_allocation(device=None):
    """The largest request that would be served now, which is what cuDNN's benchmark asks for as `cacheInfo`."""
    return _library.number("blockyard_largest_possible", allocator(device), None)


@_polled
def settings(device=None):
    """The settings in force and where each came from, as a table."""
    return _library.text("blockyard_settings", allocator(device))


@_polled
def last_report(device=None):
    """Why the last request failed that did; None: none has."""
    return _library.text("blockyard_last_report", allocator(device))


def recount(device=None):
    """Figures counted from the blocks of a snapshot, by the keys of `memory_stats`."""
    counted = dict.fromkeys(
        ("allocation", "active", "allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes"), 0
    )
    for segment in snapshot(device)["segments"]:
        counted["reserved_bytes"] += segment["total_size"]
        for block in segment["blocks"]:
            is_live = block["state"] == "active_allocated"
            is_active = block["state"] != "inactive"
            counted["allocation"] += is_live
            counted["allocated_bytes"] += block["size"] * is_live
            counted["active"] += is_active
            counted["active_bytes"] += block["size"] * is_active
            counted["requested_bytes"] += block["requested_size"] * is_active
    return {f"{key}.all.current": value for key, value in counted.items()}


# ---- what changes something, and so raises ----


def empty_cache(device=None):
    """`torch.cuda.empty_cache`, of blockyard's cache. Returns the bytes that went back to the driver."""
    return _library.number("blockyard_empty_cache", allocator(device))


def set_per_process_memory_fraction(fraction, device=None):
    """`torch.cuda.set_per_process_memory_fraction`."""
    _library.done("blockyard_set_memory_fraction", allocator(device), ctypes.c_double(fraction))


def record_memory_history(records=100_000, device=None):
    """Keeps the last so many records (0: none; None: all)."""
    count = _library.ALL if records is None else records
    _library.done("blockyard_record", allocator(device), ctypes.c_uint64(count))


def write_snapshot(path, device=None):
    """Writes the snapshot as JSON, which PyTorch's viewer opens."""
    _library.done("blockyard_write_snapshot", allocator(device), str(path).encode())


def write_trace(path, device=None):
    """Writes the history as a trace, which `blockyard replay` reads."""
    _library.done("blockyard_write_trace", allocator(device), str(path).encode())


@contextlib.contextmanager
def tag(name):
    """Names what this thread allocates meanwhile."""
    library = _library.load()
    _library.check(library.blockyard_tag_push(name.encode()))
    try:
        yield
    finally:
        _library.check(library.blockyard_tag_pop())


# ---- what works ----


def support(device=None):
    """What can be asked, and the answer now: a list of (name, value or `Unsupported`)."""
    import torch

    native = "PyTorch's own cache is on top and counts by itself"
    rows = [
        ("allocated", memory_allocated(device)),
        ("reserved", memory_reserved(device)),
        ("peak allocated", max_memory_allocated(device)),
        ("peak reserved", max_memory_reserved(device)),
        ("reset peak", reset_peak_memory_stats(device)),
        ("snapshot", snapshot(device)),
        ("cacheInfo", largest_possible_allocation(device)),
        ("summary", memory_summary(device)),
    ]
    rows = [(name, "yes" if value is None or isinstance(value, (dict, str)) else value) for name, value in rows]
    through = lambda call: _polled(call)() if is_installed() else Unsupported(f"not installed: {native}")  # noqa: E731
    rows += [
        ("torch.cuda.memory_stats", through(lambda: torch.cuda.memory_stats(device)["allocated_bytes.all.current"])),
        ("torch.cuda.memory_snapshot", through(lambda: len(torch.cuda.memory_snapshot()))),
        ("torch.cuda.OutOfMemoryError", through(lambda: "yes")),
        ("torch.cuda.MemPool", through(lambda: "yes")),
        ("CUDA graphs", through(lambda: "yes")),
        ("cudagraph trees (checkpoints)", Unsupported("getCheckpointState")),
        ("sharing memory between processes", Unsupported("shareIpcHandle")),
        ("allocation trace trackers (NCCL registration)", Unsupported("attachAllocatorTraceTracker")),
        ("MemPool(use_on_oom=True), MemPool(no_split=True)", Unsupported("setUseOnOOM, setNoSplit")),
    ]
    return rows


def support_table(device=None):
    """Prints `support` as a table."""
    rows = [(name, repr(value) if isinstance(value, Unsupported) else str(value)) for name, value in support(device)]
    width = max(len(name) for name, _ in rows)
    print("\n".join(f"{name:<{width}}  {value}" for name, value in rows))
