"""Specs, pod templates and statuses: examples, values of fields, and changes."""
