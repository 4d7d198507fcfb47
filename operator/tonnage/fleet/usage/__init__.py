"""What is in use on nodes: held by pods, or assumed for replicas."""
