"""What `tonnage plan` is made of: plans from files and dumps, and differences."""
