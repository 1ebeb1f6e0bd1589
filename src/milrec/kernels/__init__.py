"""Kernels: compiled loops over rows, logits and lists, and the threads that run them. numba is imported nowhere else."""
