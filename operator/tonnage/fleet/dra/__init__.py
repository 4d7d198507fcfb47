"""Dynamic Resource Allocation: GPUs that drivers publish, and devices that claims hold."""
