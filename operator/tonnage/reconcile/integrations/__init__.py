"""Objects next to the replicas: InferencePools, endpoints for long requests, AcceleratorPools."""
