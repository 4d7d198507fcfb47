"""Estimate speed and cost by a roofline with effective, not peak, figures."""
