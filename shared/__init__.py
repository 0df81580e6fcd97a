"""What all services share: messages, keys, the law. Imports no service."""
