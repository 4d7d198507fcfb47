"""The two kinds as pydantic models: the single source of the CRDs, and of what is parsed."""
