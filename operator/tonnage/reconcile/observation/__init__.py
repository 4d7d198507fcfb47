"""What one reconcile knows: the object, its children and its pods, and what the previous status
says."""
