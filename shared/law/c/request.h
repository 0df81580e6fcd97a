/* What is asked of a row, and the row with bias, penalties and bans applied. */

#ifndef DRAFTMESH_REQUEST_H
#define DRAFTMESH_REQUEST_H

#include "row.h"

#define PIECE 256

enum { BROKEN = -1, OUTSIDE = -2, NO_MEMORY = -3 };

typedef struct {
    const float *values;
    const uint8_t *mask; /* null: everything may come */
    int64_t size;
    const int32_t *bias_ids;
    const float *biases;
    int64_t n_bias;
    const int32_t *banned;
    int64_t n_banned;
    const int32_t *prompt; /* each id once */
    int64_t n_prompt;
    const int32_t *output; /* each id once */
    const float *counts;
    const uint8_t *fresh; /* 1: the output's id is not in the prompt */
    int64_t n_output;
    double temperature;
    double top_p, log_min_p; /* 1 and minus infinity: off */
    uint64_t seed;
    int64_t offset, top_k; /* top-k 0: off */
    int64_t count; /* how many of the best are wanted */
    float repetition, presence, frequency;
    int32_t greedy;
} DrawRequest;


static int is_patched(const DrawRequest *request) {
    return request->n_bias || request->n_prompt || request->n_output || request->n_banned;
}

/* Penalise `values` at `ids`; `counts` is null for ids that the output has not, and `fresh` where all were not yet
   penalised. In pieces that gather, compute and scatter, because one id after the other waits for memory and guesses
   signs wrongly. OUTSIDE if there is no such value, BROKEN if one is not fine. */
static int penalise(const DrawRequest *request, float *values, const int32_t *ids, int64_t size, const float *counts,
                    const uint8_t *fresh) {
    float found[PIECE], less[PIECE];
    int fine = 1;
    for (int64_t start = 0; start < size; start += PIECE) {
        int count = size - start < PIECE ? (int)(size - start) : PIECE;
        for (int i = 0; i < count; i++) {
            if (ids[start + i] >= request->size)
                return OUTSIDE;
            found[i] = values[ids[start + i]];
            fine &= found[i] <= FLT_MAX;
        }
        for (int i = 0; i < count; i++) {
            float divided = found[i] / request->repetition, multiplied = found[i] * request->repetition;
            less[i] = found[i] > 0.0f ? divided : multiplied;
        }
        if (fresh)
            for (int i = 0; i < count; i++)
                less[i] = fresh[start + i] ? less[i] : found[i];
        if (counts)
            for (int i = 0; i < count; i++)
                less[i] -= request->presence + request->frequency * counts[start + i];
        for (int i = 0; i < count; i++)
            values[ids[start + i]] = less[i];
    }
    return fine ? 0 : BROKEN;
}

/* Make `copy` the values with everything but the mask applied. BROKEN if one of those that change is not fine. */
static int patch(const DrawRequest *request, float *copy, int with_bans) {
    const float *raw = request->values;
    int fine = 1;
    memcpy(copy, raw, (size_t)request->size * sizeof *copy);
    for (int64_t i = 0; i < request->n_bias; i++)
        if (request->bias_ids[i] < request->size) {
            fine &= raw[request->bias_ids[i]] <= FLT_MAX;
            copy[request->bias_ids[i]] += request->biases[i];
        }
    int fault = penalise(request, copy, request->prompt, request->n_prompt, NULL, NULL);
    if (!fault)
        fault = penalise(request, copy, request->output, request->n_output, request->counts, request->fresh);
    if (fault)
        return fault;
    for (int64_t i = 0; with_bans && i < request->n_banned; i++)
        if (request->banned[i] < request->size) {
            fine &= raw[request->banned[i]] <= FLT_MAX;
            copy[request->banned[i]] = -INFINITY;
        }
    return fine ? 0 : BROKEN;
}

/* Scan what the request leaves of its values; bans give way where they leave nothing. */
static int read_row(Row *row, const DrawRequest *request, float *copy) {
    int patched = is_patched(request), fault = patched ? patch(request, copy, 1) : 0;
    if (fault)
        return fault;
    if (!scan(row))
        return BROKEN;
    if (row->top == -INFINITY && request->n_banned) {
        patch(request, copy, 0);
        scan(row);
    }
    return row->top == -INFINITY ? BROKEN : 0;
}

#endif
