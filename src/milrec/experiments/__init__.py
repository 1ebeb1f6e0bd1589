"""Experiments: recipes, the search for settings, and runs of many fits that can be stopped and resumed."""
