"""The same work on a Ray cluster; ray is imported nowhere else."""
