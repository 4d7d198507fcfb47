"""Children that an object may have: an InferencePool and a PodDisruptionBudget."""
