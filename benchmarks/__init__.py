"""Benchmarks: each prints figures, and asserts nothing."""
