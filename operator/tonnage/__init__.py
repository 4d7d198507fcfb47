"""Tonnage places LLM inference on heterogeneous GPU fleets and reports why.

The packages form a pipeline, and each imports only packages before it (import-linter checks this,
see `.importlinter`):

api, catalog, checkpoint, fit, fleet | throughput | demand, placement, engines | kube | telemetry,
workloads, informers, reconcile, controller, manager, cli.

api, catalog, fit, fleet, throughput, demand, placement, engines and workloads are pure: data in,
data out, no clock, no environment, no I/O. docs/architecture.md describes the pipeline.
"""

__version__ = "0.1.0"
