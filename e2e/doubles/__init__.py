"""Doubles that tests own: replicas under load, metrics APIs, a faulty network."""
