"""What the gateway reports about itself and the fleet: health, status, models, tokens, servers.

Reads only; nothing here generates.
"""
