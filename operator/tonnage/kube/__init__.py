"""Access to the API server: the KubeApi protocol and its implementation. Nothing here decides."""
