"""Other programs that tests run: helm, Prometheus, Argo CD, vLLM, the container image."""
