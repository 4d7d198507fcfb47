"""Nodes and devices as clouds, labellers and drivers describe them, and the pools they form."""
