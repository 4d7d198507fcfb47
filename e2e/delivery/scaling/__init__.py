"""Replicas that follow the load, or an autoscaler."""
