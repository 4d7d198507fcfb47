"""Size, price and rank the options of a pool."""
