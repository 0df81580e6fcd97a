"""Shows a running fleet to people: `status`, `ps`, `top`, `logs`, and the settings in force.

Reads only.
"""
