"""Several services together."""
