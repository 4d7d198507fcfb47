"""Changes of a running object: by its owner, by a later release, by webhooks, and back."""
