"""The fleet as plain values, read from cards: processes, speeds, names, and dead processes."""
