"""Input from strangers: readers, hostile values, and servers that answer as they like."""
