"""A stub of RMM for Python: its callback resource and a buffer."""

import types

_current = None


class _Stream:
    def value(self):
        return 0


class CallbackMemoryResource:
    def __init__(self, allocate_func, deallocate_func):
        self.allocate, self.deallocate = allocate_func, deallocate_func


def _set_current(resource):
    global _current
    _current = resource


mr = types.SimpleNamespace(
    CallbackMemoryResource=CallbackMemoryResource, set_current_device_resource=_set_current
)


class DeviceBuffer:
    def __init__(self, size):
        self.size, self._of = size, _current
        self._address = self._of.allocate(size, _Stream())

    def __del__(self):
        self._of.deallocate(self._address, self.size, _Stream())
