"""gate: what stands between a socket and the routes; who may ask, for how much, and how slowly."""
