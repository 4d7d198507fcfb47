"""Render the pod template of a replica."""
