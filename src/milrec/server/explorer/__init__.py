"""What the explorer page asks for beside lists: an example to open with, and which items are listed together."""
