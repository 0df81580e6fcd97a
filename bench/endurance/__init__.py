"""An hour of mixed requests, and what memory the services hold after it."""
