"""Render what vLLM needs of a pod."""
