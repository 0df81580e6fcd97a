"""The verifier over a real Redis and a toy target."""
