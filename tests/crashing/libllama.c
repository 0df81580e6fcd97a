// Stands before the real libllama: forwards three of its functions and crashes in them where TEST_CRASH says so.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// llama_model_params: only its size and the place of use_extra_bufts matter here; the build passes both.
typedef struct { uint64_t words[WORDS]; } model_params;
typedef struct { int32_t n_tokens; void * arrays[6]; } llama_batch;

static bool extra_buffers = true;

static bool crashes(const char * where) {
    const char * wanted = getenv("TEST_CRASH");
    return wanted && strcmp(wanted, where) == 0;
}

void llama_backend_init(void) {
    if (crashes("start")) raise(SIGILL);
    ((void (*)(void)) dlsym(RTLD_NEXT, "llama_backend_init"))();
}

void * llama_model_load_from_file(const char * path, model_params params) {
    extra_buffers = ((const bool *) &params)[FLAG];
    return ((void * (*)(const char *, model_params)) dlsym(RTLD_NEXT, "llama_model_load_from_file"))(path, params);
}

int32_t llama_decode(void * context, llama_batch batch) {
    if (batch.n_tokens > 1 && (crashes("always") || (crashes("rows") && extra_buffers))) raise(SIGILL);
    return ((int32_t (*)(void *, llama_batch)) dlsym(RTLD_NEXT, "llama_decode"))(context, batch);
}
