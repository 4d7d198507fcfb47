"""Render what SGLang needs of a pod."""
