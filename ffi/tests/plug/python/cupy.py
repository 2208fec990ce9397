"""A stub of CuPy: the calls of its allocator interface that the example uses, and arrays without values."""

import ctypes
import types

float32 = "float32"
_allocator = None


class _Memory:
    def __init__(self, address, free):
        self.address = address
        self._free = free

    def __del__(self):
        self._free(self.address)


class PythonFunctionAllocator:
    def __init__(self, malloc_func, free_func):
        self._malloc, self._free = malloc_func, free_func

    def malloc(self, size):
        return _Memory(self._malloc(size, 0), lambda address: self._free(address, 0))


class CFunctionAllocator:
    def __init__(self, param, malloc_func, free_func, owner):
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self._malloc = ctypes.CFUNCTYPE(pointer, pointer, size, number)(malloc_func)
        self._free = ctypes.CFUNCTYPE(None, pointer, pointer, number)(free_func)
        self._param, self._owner = param, owner

    def malloc(self, size):
        address = self._malloc(self._param, size, 0)
        return _Memory(address, lambda at: self._free(self._param, at, 0))


def _set_allocator(allocator):
    global _allocator
    _allocator = allocator


cuda = types.SimpleNamespace(
    PythonFunctionAllocator=PythonFunctionAllocator,
    CFunctionAllocator=CFunctionAllocator,
    set_allocator=_set_allocator,
    get_current_stream=lambda: types.SimpleNamespace(ptr=0),
)


class _Array:
    def __init__(self, nbytes):
        self.nbytes = nbytes
        self.memory = _allocator(nbytes)

    def __add__(self, _):
        return _Array(self.nbytes)


def zeros(shape, dtype):
    return _Array(shape[0] * shape[1] * 4)
