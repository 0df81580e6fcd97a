// The part of another release's ggml that tells its figures: it has two operations and two types.
#include <stddef.h>
#include <stdint.h>

static const char * const operations[] = { "NONE", "ADD", NULL };
static const char * const types[] = { "f32", "q4_K", NULL };

const char * ggml_op_name(int index) { return operations[index]; }
const char * ggml_type_name(int index) { return types[index]; }
size_t ggml_type_size(int index) { return index ? 144 : 4; }
int64_t ggml_blck_size(int index) { return index ? 256 : 1; }
size_t ggml_tensor_overhead(void) { return 400; }
const char * ggml_version(void) { return "0.20.0"; }
