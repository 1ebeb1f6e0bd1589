"""Command line: one short function per command. typer and rich are imported nowhere else."""
