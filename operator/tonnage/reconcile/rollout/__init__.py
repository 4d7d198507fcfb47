"""Decide which plan runs, and how pods are replaced."""
