"""GPUs in use: held by pods, or assumed for replicas."""
