"""Metrics: what a list is worth, and where in the popularity tail it comes from. NumPy and SciPy only."""
