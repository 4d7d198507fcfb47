"""Read the storage format of each linear layer."""
