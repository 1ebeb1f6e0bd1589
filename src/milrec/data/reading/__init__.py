"""reading: files of the user (tables, archives) → rows, counted and checked, and from rows to Interactions."""
