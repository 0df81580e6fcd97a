"""State in Redis that outlives one request: kept turns, stored responses, records, and the one reader that follows them
all.

No HTTP and no text.
"""
