"""Choose the next start after a start ran out of GPU memory."""
