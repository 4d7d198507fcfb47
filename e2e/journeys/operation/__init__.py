"""The commands of users, and an operator that is down, busy, or has nothing to do."""
