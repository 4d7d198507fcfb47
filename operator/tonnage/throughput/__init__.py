"""How fast and at what price: a roofline with effective, not peak, figures. Always an estimate."""
