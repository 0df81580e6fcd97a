"""What the system tells of this machine: names of devices, cores, memory, threads, signals.

No Redis, no model and no llama.cpp.
"""
