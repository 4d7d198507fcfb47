"""What the reconcile loop runs in: work queue, workers, fleet state, metrics, health.

These modules depend neither on kopf nor on how an InferenceDeployment is reconciled.
"""
