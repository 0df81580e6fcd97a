"""This machine: names of devices, cores, memory, threads, signals. No Redis, no model and no llama.cpp."""
