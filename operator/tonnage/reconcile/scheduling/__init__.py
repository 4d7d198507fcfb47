"""Decide where the replicas belong, and when they migrate."""
