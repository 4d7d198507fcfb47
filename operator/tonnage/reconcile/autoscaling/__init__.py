"""Decide the number of replicas by the measured load."""
