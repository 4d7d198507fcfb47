"""Which parallelisms and combinations vLLM accepts."""
