"""The child objects of an InferenceDeployment, as plain dicts for the API server.

Pure: what goes in decides what comes out. A pod template depends only on what needs a restart, and
an object that is applied twice changes nothing the second time.
"""
