"""Models and devices: files, the hub, vocabularies, sequences of the cache, and llama.cpp behind `llama`.

No Redis.
"""
