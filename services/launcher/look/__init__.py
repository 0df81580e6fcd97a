"""What a running fleet says, for people: `status`, `ps`, `top`, `logs`, and the settings in force.

Reads only.
"""
