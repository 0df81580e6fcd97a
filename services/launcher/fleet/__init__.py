"""Starts processes, keeps them running and ends them: `up`, `join`, services of the system, private fleets.

What to start is decided before anything starts.
"""
