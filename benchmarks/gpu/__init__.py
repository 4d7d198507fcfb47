"""Measurements on one real GPU, without a network: what is carried there, runs there, is kept."""
