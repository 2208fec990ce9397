"""Library: libblockyard by ctypes. Knows nothing of PyTorch."""

import ctypes
import functools
import os
import pathlib
import threading

ABI_MAJOR = 1
ALL = 2**64 - 1
NO_LIMIT = 2**64 - 1
STATUS = {
    0: "ok", 1: "out of memory", 2: "driver", 3: "unknown pointer", 4: "wrong size", 5: "invalid argument",
    6: "invalid handle", 7: "busy", 8: "unsupported", 9: "input/output", 10: "internal",
}
NAMES = ("libblockyard.so", "libblockyard.dylib", "blockyard.dll")


class BlockyardError(RuntimeError):
    """A call that failed: `status` is its word, the text says why."""

    def __init__(self, code, text):
        super().__init__(text)
        self.status = STATUS.get(code, str(code))


def path():
    """The library: named by BLOCKYARD_LIBRARY, or beside this file."""
    named = os.environ.get("BLOCKYARD_LIBRARY")
    if named:
        return os.path.abspath(named)
    here = pathlib.Path(__file__).resolve().parent
    for name in NAMES:
        if (here / name).exists():
            return str(here / name)
    raise BlockyardError(8, "libblockyard was not found: set BLOCKYARD_LIBRARY to its path, or put it beside this module")


_LOCK = threading.Lock()


@functools.lru_cache(maxsize=None)
def _load(name):
    with _LOCK:
        library = ctypes.CDLL(name)
    version = library.blockyard_abi_version()
    if version >> 16 != ABI_MAJOR:
        raise BlockyardError(8, f"{name} has interface {version >> 16}, this module knows {ABI_MAJOR}")
    for call, result in (
        ("blockyard_last_error_text", ctypes.c_char_p),
        ("blockyard_version", ctypes.c_char_p),
        ("blockyard_stat_key", ctypes.c_char_p),
        ("blockyard_stat_count", ctypes.c_size_t),
        ("blockyard_torch_alloc", ctypes.c_void_p),
    ):
        getattr(library, call).restype = result
    return library


def load():
    return _load(path())


def check(code):
    if code != 0:
        text = load().blockyard_last_error_text().decode(errors="replace")
        raise BlockyardError(code, text)


@functools.lru_cache(maxsize=None)
def stat_keys():
    library = load()
    return [library.blockyard_stat_key(ctypes.c_size_t(place)).decode() for place in range(library.blockyard_stat_count())]


def stats(number):
    """Every statistic of one moment."""
    keys = stat_keys()
    values = (ctypes.c_int64 * len(keys))()
    check(load().blockyard_stats(ctypes.c_uint64(number), values, ctypes.c_size_t(len(keys)), None))
    return dict(zip(keys, values))


def text(call, number):
    """A text that the library hands over; None: there is none."""
    library, out = load(), ctypes.c_void_p()
    check(getattr(library, call)(ctypes.c_uint64(number), ctypes.byref(out)))
    if not out.value:
        return None
    try:
        return ctypes.string_at(out.value).decode(errors="replace")
    finally:
        library.blockyard_text_free(out)


def number(call, handle, *arguments):
    """A number that a call writes to its last argument."""
    out = ctypes.c_uint64()
    check(getattr(load(), call)(ctypes.c_uint64(handle), *arguments, ctypes.byref(out)))
    return out.value


def done(call, handle, *arguments):
    check(getattr(load(), call)(ctypes.c_uint64(handle), *arguments))
