"""Which models are served, under which names, and how to speak to each.

Reads the registry; no HTTP.
"""
