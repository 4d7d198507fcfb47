"""Load on replicas, simulated servers, and what a Prometheus makes of them."""
