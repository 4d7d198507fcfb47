"""Bytes of weights on one GPU."""
