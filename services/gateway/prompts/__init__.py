"""From a conversation to prompt text: chat templates, what they can do, and turns that are kept as tokens.

No HTTP; knows requests, not dialects.
"""
