"""The request that every dialect turns its own into, and the fields that several dialects share. Checked and frozen.

No HTTP, no model, no Redis.
"""
