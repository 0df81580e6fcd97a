"""The drafter over a real Redis."""
