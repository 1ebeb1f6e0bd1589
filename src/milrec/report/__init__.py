"""Report: a run's results as one HTML page, next to the paper's figures and claims. No torch."""
