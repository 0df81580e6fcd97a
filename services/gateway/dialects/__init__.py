"""The HTTP dialects: each turns its bodies into requests and events into frames or one object.

A dialect knows the rooms below it and no other dialect's package.
"""
