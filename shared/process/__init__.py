"""Start, drain and end of a service, its logs, traces and API keys. Knows no service by name."""
