"""Questions to the calculation: does it fit, how much fits, and what would make it fit."""
