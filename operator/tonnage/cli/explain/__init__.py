"""What `tonnage explain` is made of: the explanation of one object, and its tables."""
