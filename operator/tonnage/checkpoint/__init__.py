"""What a model is: its shape from config.json, its bytes from safetensors headers."""
