"""Numba with blockyard as its external memory manager (EMM).

    NUMBA_CUDA_MEMORY_MANAGER=numba_blockyard python program.py       # with this folder in PYTHONPATH

or `cuda.set_memory_manager(BlockyardManager)` before anything touches the device. Numba tells an EMM no stream, so blocks
are of the default stream. Pinned and mapped host memory stay Numba's own, as its documentation recommends.
"""

import ctypes

from numba import cuda

from blockyard_c import Blockyard


class BlockyardManager(cuda.HostOnlyCUDAMemoryManager):
    """One for each context, that is for each device."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._allocator = None

    def initialize(self):
        super().initialize()
        if self._allocator is None:
            self._allocator = Blockyard()

    @property
    def blockyard(self):
        """The allocator, for statistics."""
        self.initialize()
        return self._allocator

    def memalloc(self, size):
        address = self.blockyard.alloc(size)
        allocator, live = self._allocator, self.allocations

        def finalize():
            # After a reset of the context there is nothing to free.
            if live.pop(address, None) is not None:
                allocator.free(address, size)

        live[address] = size
        return cuda.MemoryPointer(self.context, ctypes.c_uint64(address), size, finalizer=finalize)

    def reset(self):
        """The context goes away: what is live goes back first."""
        for address, size in list(self.allocations.items()):
            self._allocator.free(address, size)
        super().reset()
        if self._allocator is not None:
            self._allocator.empty_cache()

    def get_memory_info(self):
        """Free and total bytes of the device, as the driver counts: the cache counts as in use."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) != 0:
            raise RuntimeError("the driver does not say how much memory there is")
        return cuda.MemoryInfo(free=free.value, total=total.value)

    def get_ipc_handle(self, memory):
        """A block is a part of a segment, and a handle would share all of it."""
        raise NotImplementedError("blocks of blockyard are not shared with other processes")

    @property
    def interface_version(self):
        return 1


_numba_memory_manager = BlockyardManager
