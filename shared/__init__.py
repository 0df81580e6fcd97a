"""What every service agrees on: messages, keys, the law. Imports no service."""
