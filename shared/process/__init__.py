"""How a service lives: start, drain and end, logs, traces, keys.

Knows no service by name.
"""
