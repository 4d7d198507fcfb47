"""Decide whether the operator may carry out a plan that needs an approval."""
