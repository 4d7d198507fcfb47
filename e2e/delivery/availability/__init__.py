"""Several operators: standbys, shards, two leaders; and an API server that fails."""
