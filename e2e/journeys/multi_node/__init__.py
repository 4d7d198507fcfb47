"""Replicas that take several nodes."""
