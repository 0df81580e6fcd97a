"""What processes exchange: messages and their bytes, Redis keys and scripts, the durable and the hint plane.

No model and no text.
"""
