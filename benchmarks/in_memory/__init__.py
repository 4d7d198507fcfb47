"""Benchmarks without a cluster: the same functions that the operator runs, on objects in memory."""
