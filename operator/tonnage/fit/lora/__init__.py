"""GPU memory of the buffers for LoRA adapters."""
