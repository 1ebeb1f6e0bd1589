"""Data: from files and archives to interactions, and from interactions to splits."""
