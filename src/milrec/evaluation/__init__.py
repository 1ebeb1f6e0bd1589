"""What a model's lists are worth on a held-out part, and what validation says about its probabilities."""
