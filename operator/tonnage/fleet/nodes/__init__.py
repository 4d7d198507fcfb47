"""Read nodes and pods, and group identical nodes in classes."""
