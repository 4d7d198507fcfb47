"""Recordings of what a release leaves in a cluster, for tests of upgrades."""
