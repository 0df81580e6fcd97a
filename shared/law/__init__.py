"""The mathematics of verifiers and drafters: the law of the next token, grammars, acceptance, speed-up. No I/O."""
