"""A stub of numba.cuda: what an external memory manager is made of."""

import collections
import weakref

MemoryInfo = collections.namedtuple("MemoryInfo", "free,total")


class HostOnlyCUDAMemoryManager:
    def __init__(self, *, context):
        self.context = context
        self.allocations = {}

    def initialize(self):
        pass

    def reset(self):
        self.allocations.clear()


class MemoryPointer:
    def __init__(self, context, pointer, size, owner=None, finalizer=None):
        self.device_pointer, self.size = pointer, size
        self._finalizer = weakref.finalize(self, finalizer)

    def free(self):
        self._finalizer()
