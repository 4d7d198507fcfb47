"""The two kinds as pydantic models, the source of the CRDs and of parsing."""
