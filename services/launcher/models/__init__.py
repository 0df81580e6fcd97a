"""Model files as commands handle them: find, fetch, list, remove, convert.

Nothing here loads a model to decode.
"""
