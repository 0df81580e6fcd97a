"""What the gateway says of itself and the fleet: health, status, models, tokens, servers.

Reads only; nothing here generates.
"""
