"""Several processes that are one server: one socket, one metrics page, one reload and one stop for all."""
