// Makes gcc keep what ggml writes into the tile configuration of AMX.
//
// gcc does not know that `_tile_loadconfig` reads memory, so some versions (12 among them) leave out the stores that
// fill the configuration, and the first matrix product of two or more rows dies of an illegal instruction. The barrier
// tells gcc that the memory is read. llama.cpp's pull request 26954 found the fault.
#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#define _tile_loadconfig(config)                                  \
    do {                                                          \
        const void * config_ = (config);                          \
        __asm__ volatile("" : : "r"(config_) : "memory");         \
        (_tile_loadconfig)(config_);                              \
    } while (0)
#endif
