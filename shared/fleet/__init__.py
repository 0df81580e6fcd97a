"""The fleet as plain values, read from cards: processes, speeds, names, and processes that fell silent.

Each service writes only its own card.
"""
