"""Models: what each can do, their settings, and the one contract that all of them keep."""
