"""How fast the operator is next to Go controllers, and what a large fleet costs it; no tests."""
