"""Kernels: compiled loops over rows, logits and lists, and the threads that run them. No other room imports numba."""
