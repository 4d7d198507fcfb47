"""Read checkpoints from a volume, by a Job."""
