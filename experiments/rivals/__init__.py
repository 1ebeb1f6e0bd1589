"""LightGCN and RecVAE on our own splits, beside milrec's models: python -m experiments.rivals."""
