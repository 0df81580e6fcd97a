"""Guesses what the target will say; nothing depends on it."""
