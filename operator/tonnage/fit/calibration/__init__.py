"""Corrections of the calculation, measured on real starts."""
