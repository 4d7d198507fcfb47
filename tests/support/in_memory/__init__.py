"""A cluster in memory: its controllers, the operator in it, and objects in certain situations."""
