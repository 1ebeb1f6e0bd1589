"""Server: models over HTTP, and the explorer page."""
