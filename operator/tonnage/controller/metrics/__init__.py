"""The metrics of the operator."""
