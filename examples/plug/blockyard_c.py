"""One allocator of libblockyard by ctypes: what the examples for CuPy, RMM and Numba share."""

import ctypes
import os


class Blockyard:
    """An allocator. `device` and `settings` as `blockyard_create` takes them; None: what the environment says.

    The library is `BLOCKYARD_LIBRARY`, else `libblockyard.so` as the loader finds it.
    """

    def __init__(self, device=None, settings=None):
        self._library = ctypes.CDLL(os.environ.get("BLOCKYARD_LIBRARY", "libblockyard.so"))
        self._library.blockyard_last_error_text.restype = ctypes.c_char_p
        self._library.blockyard_text_free.restype = None
        number = ctypes.c_uint64()
        encoded = [text.encode() if text is not None else None for text in (device, settings)]
        self._check(self._library.blockyard_create(*encoded, ctypes.byref(number)))
        self._number = number

    def _check(self, status):
        if status == 0:
            return
        text = (self._library.blockyard_last_error_text() or b"").decode()
        raise (MemoryError if status == 1 else RuntimeError)(text)

    def alloc(self, size, stream=0):
        """The address of a block. Raises MemoryError with the report."""
        if size == 0:
            return 0
        pointer = ctypes.c_void_p()
        self._check(
            self._library.blockyard_alloc(
                self._number, ctypes.c_uint64(size), ctypes.c_void_p(stream), ctypes.byref(pointer)
            )
        )
        return pointer.value or 0

    def free(self, address, size=0):
        """Gives a block back, on the stream of its request. `size` 0: not known."""
        if address:
            self._check(
                self._library.blockyard_free(self._number, ctypes.c_void_p(address), ctypes.c_uint64(size))
            )

    def stat(self, key):
        """One statistic by PyTorch's key, such as "allocated_bytes.all.peak"."""
        value = ctypes.c_int64()
        self._check(self._library.blockyard_stat(self._number, key.encode(), ctypes.byref(value)))
        return value.value

    def summary(self):
        """Tables for people."""
        text = ctypes.c_char_p()
        self._check(self._library.blockyard_summary(self._number, ctypes.byref(text)))
        said = text.value.decode()
        self._library.blockyard_text_free(text)
        return said

    def empty_cache(self):
        """Gives what is idle back to the driver."""
        self._check(self._library.blockyard_empty_cache(self._number, None))
