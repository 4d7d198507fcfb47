"""What a platform team does with Tonnage: install it, deliver by GitOps, watch, and combine."""
