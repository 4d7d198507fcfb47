"""What `tonnage fit` is made of: flags and cases, the question, its answer and report."""
