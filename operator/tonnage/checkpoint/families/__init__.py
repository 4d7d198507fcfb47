"""Read the layers of families whose configs have field names of their own."""
