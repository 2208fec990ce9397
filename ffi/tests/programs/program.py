"""Program: the C interface from Python by ctypes, and what of `blockyard_torch` needs no PyTorch."""

import ctypes
import os
import sys

import blockyard_torch
from blockyard_torch import _library

os.environ["BLOCKYARD_DEVICE"] = "sim:64MiB"
MIB = 1 << 20


def main():
    library = _library.load()
    number = ctypes.c_uint64()
    created = library.blockyard_create(b"sim:64MiB", b"pytorch", ctypes.byref(number))
    assert created == 0, library.blockyard_last_error_text()
    pointer = ctypes.c_void_p()
    assert library.blockyard_alloc(number, ctypes.c_uint64(3 * MIB), None, ctypes.byref(pointer)) == 0
    assert _library.stats(number.value)["allocated_bytes.all.current"] == 3 * MIB
    assert library.blockyard_free(number, pointer, ctypes.c_uint64(1)) == 4
    assert library.blockyard_free(number, pointer, ctypes.c_uint64(0)) == 0
    assert library.blockyard_free(number, pointer, ctypes.c_uint64(0)) == 3
    assert library.blockyard_destroy(number) == 0

    library.blockyard_torch_alloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    blockyard_torch.record_memory_history(None, device=0)
    with blockyard_torch.tag("step"):
        held = library.blockyard_torch_alloc(5 * MIB, 0, None)
    assert held
    assert blockyard_torch.memory_allocated(0) == 5 * MIB
    assert blockyard_torch.recount(0).items() <= blockyard_torch.memory_stats(0).items()
    assert blockyard_torch.largest_possible_allocation(0) > 32 * MIB
    assert "memory summary" in blockyard_torch.memory_summary(0)
    snapshot = blockyard_torch.snapshot(0)
    assert any("step" in entry["user_metadata"] for entry in snapshot["device_traces"][0])
    assert library.blockyard_torch_alloc(1 << 40, 0, None) is None
    assert "impossible-size" in blockyard_torch.last_report(0)
    library.blockyard_torch_free(ctypes.c_void_p(held), ctypes.c_ssize_t(5 * MIB), ctypes.c_int(0), None)
    assert blockyard_torch.memory_allocated(0) == 0
    assert blockyard_torch.empty_cache(0) > 0
    blockyard_torch.reset_peak_memory_stats(0)
    assert blockyard_torch.max_memory_reserved(0) == 0
    blockyard_torch.set_per_process_memory_fraction(0.5, 0)

    # A poll never raises: it says what it does not know.
    unknown = blockyard_torch.memory_allocated(-1)
    assert unknown == 0 and isinstance(unknown, blockyard_torch.Unsupported) and "device" in repr(unknown)
    try:
        blockyard_torch.empty_cache(-1)
    except blockyard_torch.BlockyardError as error:
        assert error.status == "invalid argument"
    else:
        sys.exit("a request of a device that cannot be was answered")
    print("python: done")


if __name__ == "__main__":
    main()
