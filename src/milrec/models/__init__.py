"""Models: what each can do, their settings, and the one contract that they all follow."""
