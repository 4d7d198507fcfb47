"""Renders the child objects of an InferenceDeployment, as plain dicts for the API server.

Pure: the output depends only on the input. A pod template depends only on what needs a restart, and
the second apply of an object changes nothing.
"""
