"""Read checkpoints from a Hugging Face Hub. Only this package imports huggingface_hub."""
