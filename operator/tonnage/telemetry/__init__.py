"""What vLLM says of itself once it runs: its logs, and what a Prometheus scraped from it."""
