"""Speaks HTTP to clients and owns all text: templates, tokens to text, stop strings."""
