"""Data about models: classes, families, encoders, and defaults of their configs."""
