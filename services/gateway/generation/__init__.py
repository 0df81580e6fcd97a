"""From a checked request to jobs, and from commits to events: text, parts, calls, usage.

The same for all dialects, so no HTTP and no dialect in it.
"""
