"""Kernels: compiled loops over rows, logits and lists, and the threads that run them. Only here is numba imported."""
