"""The mathematics that verifier, drafters and tests share: the law of the next token, grammars, acceptance, speed-up.

No I/O.
"""
