"""From a conversation to prompt text: chat templates, what they can do, and and turns kept as tokens.

No HTTP; knows requests, not dialects.
"""
