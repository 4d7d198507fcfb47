"""The memory of a GPU under SGLang: its static fraction, and the tokens of its pools."""
