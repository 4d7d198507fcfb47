"""The way to the API server: a small protocol, its implementation, and nothing that decides."""
