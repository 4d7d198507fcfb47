"""Tonnage places LLM inference on heterogeneous GPU fleets and says why.

The rooms of this package stand in the order of the road that one object takes; a room imports
only rooms above it (checked by import-linter, see `.importlinter`):

api, catalog, checkpoint, fit, throughput | fleet, placement, render | kube, reconcile, runtime,
watch, cli.

Everything above `reconcile` is pure: data in, data out, no clock, no environment, no I/O.
"""

__version__ = "0.1.0"
