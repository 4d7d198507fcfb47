"""Reject pools and options that an object cannot or may not use."""
