"""Engines: a double, arguments and their parsers, and shapes of models."""
