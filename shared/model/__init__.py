"""Models: files, the hub, vocabularies, sequences of the cache, and llama.cpp in `llama`. No Redis."""
