"""A stub of Numba."""
