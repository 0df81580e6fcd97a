"""The gateway over a real Redis and a scripted verifier."""
