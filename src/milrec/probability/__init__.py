"""From a logit to the probability that a pair is held out, and what a place in the tail costs in hits. No torch."""
