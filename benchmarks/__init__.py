"""Speed and memory, side by side with rivals on equal work: `make bench`."""
