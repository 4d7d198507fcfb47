"""Which pool, nodes and GPUs replicas get, and which of several objects goes first."""
