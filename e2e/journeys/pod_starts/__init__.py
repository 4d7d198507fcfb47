"""Starts of pods: their phases, failures, and what the servers then measure."""
