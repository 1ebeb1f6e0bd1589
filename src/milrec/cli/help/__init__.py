"""What `--help` adds to a command's own words: examples that work, and the settings of a fit."""
