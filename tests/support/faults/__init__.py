"""Scenarios with a fault in them, other releases and mutants of the operator, and time."""
