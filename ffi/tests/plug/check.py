"""Check: the examples for CuPy, RMM and Numba, over the true library and stubs of those packages."""

import gc

import cupy_blockyard
import numba_blockyard
import rmm_blockyard
from blockyard_c import Blockyard

import cupy


def numba():
    manager = numba_blockyard._numba_memory_manager(context=None)
    manager.initialize()
    live = "allocated_bytes.all.current"
    pointer = manager.memalloc(3 << 20)
    assert pointer.device_pointer.value % 512 == 0
    assert manager.blockyard.stat(live) == 3 << 20
    pointer.free()
    assert manager.blockyard.stat(live) == 0
    left = manager.memalloc(1 << 20)
    manager.reset()
    assert manager.blockyard.stat(live) == 0 and manager.blockyard.stat("reserved_bytes.all.current") == 0
    left.free()
    try:
        manager.memalloc(1 << 40)
    except MemoryError as error:
        assert "impossible-size" in str(error), error
    else:
        raise AssertionError("1 TiB was promised")


def cupy_by_c():
    allocator = Blockyard()
    cupy.cuda.set_allocator(cupy_blockyard.by_c_functions(allocator).malloc)
    array = cupy.zeros((256, 256), cupy.float32)
    assert allocator.stat("allocated_bytes.all.current") == array.nbytes
    del array
    gc.collect()
    assert allocator.stat("allocated_bytes.all.current") == 0


cupy_blockyard.main()
cupy_by_c()
rmm_blockyard.main()
numba()
print("plug: done")
