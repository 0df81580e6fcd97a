"""Starts processes, keeps them running and ends them: `up`, `join`, services of the system, private fleets.

Decides what to start before it starts anything.
"""
