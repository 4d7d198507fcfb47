"""What the world is like: accelerators, prices, images, engine versions, compatibility rules.

Data files with a source and a date, and their loader; adding an accelerator is a data change.
"""
