"""CuPy with blockyard as its allocator.

    BLOCKYARD_LIBRARY=target/release/libblockyard.so python examples/plug/cupy_blockyard.py

CuPy takes an allocator as two functions: Python ones (`PythonFunctionAllocator`), or addresses of C ones
(`CFunctionAllocator`). Neither is told the stream, so the Python functions ask CuPy for the current one. libblockyard has no
C function of CuPy's type `void* (void* param, size_t size, int device)`; `by_c_functions` makes one by ctypes, which is only
worth it for programs that want a C function: it is no faster.
"""

import ctypes

import cupy

from blockyard_c import Blockyard


def by_python_functions(allocator):
    """For `cupy.cuda.set_allocator(....malloc)`."""

    def malloc(size, device):
        return allocator.alloc(size, cupy.cuda.get_current_stream().ptr)

    def free(address, device):
        allocator.free(address)

    return cupy.cuda.PythonFunctionAllocator(malloc, free)


def by_c_functions(allocator):
    """The same by addresses of C functions. Blocks are of the default stream. A null pointer is all that C can say, and
    CuPy does not look at it: so this refuses loudly, and the Python functions are to be preferred."""
    malloc_type = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    free_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)

    def malloc(param, size, device):
        try:
            return allocator.alloc(size)
        except MemoryError as error:
            print(f"blockyard: {error}", flush=True)
            return 0

    def free(param, address, device):
        allocator.free(address or 0)

    functions = malloc_type(malloc), free_type(free)
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
    # The last argument is kept alive as long as the allocator.
    return cupy.cuda.CFunctionAllocator(0, *addresses, functions)


def main():
    allocator = Blockyard()
    cupy.cuda.set_allocator(by_python_functions(allocator).malloc)
    first = cupy.zeros((1024, 1024), dtype=cupy.float32)
    second = first + 1
    assert allocator.stat("allocated_bytes.all.current") >= first.nbytes + second.nbytes
    del first, second
    assert allocator.stat("allocated_bytes.all.current") == 0
    print(allocator.summary())


if __name__ == "__main__":
    main()
