"""RMM's Python callback resource over blockyard; for C++ see include/blockyard_rmm.hpp.

    BLOCKYARD_LIBRARY=target/release/libblockyard.so python examples/plug/rmm_blockyard.py
"""

import rmm

from blockyard_c import Blockyard


def handle_of(stream):
    """The driver's handle of RMM's stream: its releases spell it in three ways."""
    for ask in (lambda: stream.value(), lambda: stream.__cuda_stream__()[1], lambda: int(stream)):
        try:
            return ask()
        except (AttributeError, TypeError):
            continue
    return 0


def resource(allocator):
    """For `rmm.mr.set_current_device_resource`. Every request calls back into Python and takes its lock: for programs
    whose requests are few, or already served from an RMM pool above it."""

    def allocate(size, stream=None):
        return allocator.alloc(size, handle_of(stream))

    def deallocate(address, size, stream=None):
        allocator.free(address, size)

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)


def main():
    allocator = Blockyard()
    rmm.mr.set_current_device_resource(resource(allocator))
    buffer = rmm.DeviceBuffer(size=1 << 20)
    assert allocator.stat("allocated_bytes.all.current") >= buffer.size
    del buffer
    assert allocator.stat("allocated_bytes.all.current") == 0
    print(allocator.summary())


if __name__ == "__main__":
    main()
