"""What speculation would bring on this machine: `doctor`, `plan`, `setup`, and the arithmetic behind them.

Measures models; starts no fleet.
"""
