"""Fake GPU nodes and what their kubelets do."""
