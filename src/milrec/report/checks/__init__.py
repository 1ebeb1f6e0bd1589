"""checks: what the figures of a run say about each claim of the paper. No torch."""
