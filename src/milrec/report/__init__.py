"""Report: a run's results as one HTML page, beside the paper's figures and claims. No torch."""
