"""Read the headers and the tensor tables of safetensors files."""
