"""Logs, metrics, Events, alerts, and a Prometheus that fails."""
