"""One step of a fit."""
