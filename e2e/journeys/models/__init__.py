"""Models: where they come from, how nodes get their weights, adapters, engines, and endpoints."""
