"""Training: settings, target sets, batches, steps and checkpoints of a fit, and the models that need no steps."""
