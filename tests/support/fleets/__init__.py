"""Nodes, pods and devices as vendors and drivers publish them, and who was promised their GPUs."""
