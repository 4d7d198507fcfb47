"""The part of a case that vLLM itself defines: its flags and their values, and its release."""
