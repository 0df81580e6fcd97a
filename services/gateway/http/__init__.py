"""What every route does, whatever its dialect: bodies, keys, limits, answers as streams or whole, errors as statuses.

Knows dialects by the protocol in `dialect` only.
"""
