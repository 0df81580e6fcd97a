"""The fleet as plain values told from cards: who is there, how fast, under which names, who fell silent.

No service writes here; each writes its own card.
"""
