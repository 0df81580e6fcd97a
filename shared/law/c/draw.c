/* The draw from one row of logits in native code: what shared/law/sampling.py says with numpy, in fewer passes.

   One pass finds the largest value of every block of ids, and whether the row is broken. Truncated laws then read only
   the blocks whose peak lets them in; the law without truncation reads the row once more, for its sum. Noise is
   computed only for ids that may still win. Nothing here keeps state, so any thread may call it, and it takes no part
   in Python: shared/law/native.py loads it with ctypes, and its structure `DrawRequest` repeats the one in request.h. */

#include "head.h"
#include "request.h"
#include "truncation.h"

#include <stdlib.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#define VERSION 1 /* native.py has the same; raise both with every change of `DrawRequest` or of a function's parameters */

/* What a row needs beside its values, in one allocation. Pages that nothing touches cost nothing. */
typedef struct {
    void *memory;
    uint64_t *keys;
    Head head;
    float *peaks, *copy;
} Workspace;

static int allocate(Workspace *space, int64_t size) {
    int64_t room = size + BLOCK;
    space->memory = malloc((size_t)room * (sizeof(uint64_t) + sizeof(double) + sizeof(int32_t) + 2 * sizeof(float)));
    space->keys = space->memory;
    space->head.logp = (double *)(space->keys + room);
    space->head.ids = (int32_t *)(space->head.logp + room);
    space->peaks = (float *)(space->head.ids + room);
    space->copy = space->peaks + room;
    return space->memory != NULL;
}

static Row row_of(const float *values, const uint8_t *mask, int64_t size, float *peaks) {
    return (Row){values, mask, size, (size + BLOCK - 1) / BLOCK, peaks, -INFINITY};
}

static int64_t best_in_order(const Row *row, int64_t count, uint64_t *keys, int64_t *ids, double *values) {
    int64_t found = best(row, count, keys);
    sort(keys, found);
    for (int64_t i = 0; i < found; i++) {
        ids[i] = id_of(keys[i]);
        values[i] = value_of(keys[i]);
    }
    return found;
}

static int64_t draw_from(const Row *row, const DrawRequest *request, uint64_t *keys, Head *head, int64_t *ids,
                         double *scores) {
    if (request->greedy && request->count == 1) {
        ids[0] = likeliest(row);
        scores[0] = row->top;
        return 1;
    }
    if (request->greedy)
        return best_in_order(row, request->count, keys, ids, scores);
    int64_t left = truncated(row, request, keys);
    if (left >= 0)
        head_of_survivors(head, keys, left, request->temperature);
    else
        head_of_all(head, row, (float)request->temperature);
    uint64_t key = noise_key(request->seed, request->offset);
    int64_t found = drawn(head, key, request->count, ids, scores);
    if (head->lump == -INFINITY)
        return found;
    double lump = head->lump + gumbel(key, LUMP);
    if (lump > scores[0]) {
        found = found < request->count ? found + 1 : found;
        memmove(ids + 1, ids, (size_t)(found - 1) * sizeof *ids);
        memmove(scores + 1, scores, (size_t)(found - 1) * sizeof *scores);
        ids[0] = inside_lump(row, (float)request->temperature, key);
        scores[0] = lump;
    }
    return found;
}

/* Fill `ids` and `scores`, each of size `count`, with what the law draws and what came closest, best first. Returns how
   many there are, or a fault. */
EXPORT int64_t draftmesh_draw(const DrawRequest *request, int64_t *ids, double *scores) {
    Workspace space;
    if (!allocate(&space, request->size))
        return NO_MEMORY;
    Row row = row_of(is_patched(request) ? space.copy : request->values, request->mask, request->size, space.peaks);
    int64_t found = read_row(&row, request, space.copy);
    if (!found)
        found = draw_from(&row, request, space.keys, &space.head, ids, scores);
    free(space.memory);
    return found;
}

/* Fill `ids` with the `count` likeliest ids and `values` with their logits. Returns how many there are, or a fault;
   `normaliser` is what to take off a logit for its log-probability. */
EXPORT int64_t draftmesh_likeliest(const float *values, int64_t size, int64_t count, double *normaliser, int64_t *ids,
                                   double *logits) {
    Workspace space;
    if (!allocate(&space, size))
        return NO_MEMORY;
    Row row = row_of(values, NULL, size, space.peaks);
    int64_t found = scan(&row) && row.top > -INFINITY ? 0 : BROKEN;
    if (!found) {
        double within, beyond;
        weigh(&row, 1.0f, NONE_WITHIN, &within, &beyond);
        *normaliser = row.top + log(beyond);
        found = count ? best_in_order(&row, count, space.keys, ids, logits) : 0;
    }
    free(space.memory);
    return found;
}

EXPORT int32_t draftmesh_version(void) { return VERSION; }

/* The linker of Windows looks for the first function of a Python module; nothing calls it. */
EXPORT void *PyInit__draw(void) { return NULL; }
