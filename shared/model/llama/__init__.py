"""llama.cpp: libraries, devices, models, vocabularies and contexts. Nothing outside this package imports llama_cpp.

A failed assert inside ggml ends the process, so this package checks ranges before every call. Upstream:
llama.cpp's `include/llama.h`.
"""
