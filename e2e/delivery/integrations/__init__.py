"""Kueue, gateways, and the samples for other projects."""
