"""Files on a disk: syncs, drafts and leftovers, and one writer at a time."""
