"""Group nodes into pools, and report them."""
