"""The loop: observe, plan, execute, report."""
