"""The product as a client sees it: `launch`, `demo`, and one streamed request.

Speaks HTTP to a gateway; reads no card.
"""
