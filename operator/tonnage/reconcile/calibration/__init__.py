"""Compare measured KV caches with predicted ones, and keep corrections."""
