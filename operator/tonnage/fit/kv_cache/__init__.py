"""Bytes of the KV cache on one GPU, and the tokens that it holds."""
