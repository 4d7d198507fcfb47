"""Read the fields of a config.json that most families share."""
