//! Heap.
