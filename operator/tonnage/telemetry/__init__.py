"""What a running vLLM reports: its start-up log, its metrics, and Prometheus' samples of them."""
