"""Memory that vLLM uses at once in its profile run, besides weights and KV cache."""
