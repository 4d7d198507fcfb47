"""Charts, overlays, the image, and a newer release on the objects of an older one."""
