"""What uses a gateway as a client does: `launch`, `demo`, and one streamed request.

Speaks HTTP to a gateway; reads no card.
"""
