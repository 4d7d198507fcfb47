"""Read the vision and audio encoders of multimodal models."""
