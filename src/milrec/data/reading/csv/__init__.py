"""Delimited text → tables: how it is parsed, that no row is lost, and where it goes wrong."""
