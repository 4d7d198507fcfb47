"""Make the status and the conditions of an object."""
