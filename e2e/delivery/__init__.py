"""What a platform team does with Tonnage: install, deploy with GitOps, monitor and combine it."""
