"""The shapes of objects in files: the fields that Tonnage reads, and their types."""
