"""What the cluster has: pools of nodes with the same accelerator, and what is free on each node."""
