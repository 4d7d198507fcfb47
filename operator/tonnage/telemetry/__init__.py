"""What a running engine reports: its start-up log, its metrics, Prometheus' samples of them,
and its adapters."""
