"""Why pods do not serve: their own state, and what the cluster reports beyond it."""
