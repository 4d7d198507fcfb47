"""Recognize the devices of a node by its labels and resources."""
