"""Notebooks: what a data scientist looks at in a session, models side by side and the figures of the report."""
