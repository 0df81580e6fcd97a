"""How much speculation would help on this machine: `doctor`, `plan`, `setup`, and the arithmetic behind them.

Measures models; starts no fleet.
"""
