"""How fast the operator is beside Go controllers on the same control plane; no tests."""
