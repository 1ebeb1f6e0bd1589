"""Tables larger than memory → data folders: the same bytes as in memory, by way of the disk."""
