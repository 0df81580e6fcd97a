/* Top-k, top-p and min-p: which ids of a row survive. */

#ifndef DRAFTMESH_TRUNCATION_H
#define DRAFTMESH_TRUNCATION_H

#include "keys.h"
#include "request.h"
#include "row.h"

#define NONE_WITHIN (-1.0f)
#define STEPS 11

/* How far below the top the best are searched, in turn, until there are enough of them. */
static const double STEP_NATS[STEPS] = {3.0, 6.0, 9.0, 12.0, 15.0, 18.0, 21.0, 24.0, 32.0, 48.0, INFINITY};

/* The keys of all finite values of at least `bar`. */
static int64_t gather(const Row *row, double bar, uint64_t *keys) {
    float room[BLOCK];
    int64_t found = 0;
    for (int64_t block = 0; block < row->blocks; block++) {
        if (row->peaks[block] < bar || row->peaks[block] == -INFINITY)
            continue;
        const float *values = block_at(row, block, room);
        for (int i = 0; i < BLOCK; i++)
            if (values[i] >= bar && values[i] > -INFINITY)
                keys[found++] = key_of(values[i], block * BLOCK + i);
    }
    return found;
}

/* The keys of the `count` best, in no order; fewer if there are fewer. As many blocks have a peak of at least the
   `count`-th best peak, so no value below it is among the best. More than there are blocks are searched from the top. */
static int64_t best(const Row *row, int64_t count, uint64_t *keys) {
    int64_t found = 0;
    if (count <= row->blocks) {
        for (int64_t block = 0; block < row->blocks; block++)
            keys[block] = key_of(row->peaks[block], block);
        select_smallest(keys, row->blocks, count);
        uint64_t last = 0;
        for (int64_t i = 0; i < count; i++)
            last = keys[i] > last ? keys[i] : last;
        found = gather(row, value_of(last), keys);
    } else
        for (int i = 0; i < STEPS && found < count; i++)
            found = gather(row, row->top - STEP_NATS[i], keys);
    if (found <= count)
        return found;
    select_smallest(keys, found, count);
    return count;
}

/* How many of the best keys reach `bar` together, which come first then; `size` + 1 if all do not. */
static int64_t reach(uint64_t *keys, int64_t size, float top, double bar) {
    double sum = 0.0;
    for (int64_t start = 0, end = 64; start < size; start = end, end = size) {
        if (end < size)
            select_smallest(keys + start, size - start, end - start);
        else
            end = size;
        sort(keys + start, end - start);
        for (int64_t i = start; i < end; i++)
            if ((sum += exp((double)value_of(keys[i]) - top)) >= bar)
                return i + 1;
    }
    return size + 1;
}

static int64_t nucleus(const Row *row, double p, uint64_t *keys) {
    double within, beyond;
    weigh(row, 1.0f, NONE_WITHIN, &within, &beyond);
    int64_t found = 0;
    for (int i = 0; i < STEPS; i++) {
        found = gather(row, row->top - STEP_NATS[i], keys);
        int64_t reached = reach(keys, found, row->top, p * beyond);
        if (reached <= found)
            return reached;
    }
    return found;
}

/* The keys of what survives truncation, in no order; -1 if nothing is truncated. */
static int64_t truncated(const Row *row, const DrawRequest *request, uint64_t *keys) {
    int64_t found = -1;
    if (request->top_k && request->top_k < row->size)
        found = best(row, request->top_k, keys);
    if (request->top_p < 1.0 && found >= 0) {
        double sum = 0.0;
        for (int64_t i = 0; i < found; i++)
            sum += exp((double)value_of(keys[i]) - row->top);
        int64_t reached = reach(keys, found, row->top, request->top_p * sum);
        found = reached < found ? reached : found;
    } else if (request->top_p < 1.0)
        found = nucleus(row, request->top_p, keys);
    if (request->log_min_p == -INFINITY)
        return found;
    double bar = row->top + request->log_min_p;
    if (found < 0)
        return gather(row, bar, keys);
    int64_t left = 0;
    for (int64_t i = 0; i < found; i++)
        if (value_of(keys[i]) >= bar)
            keys[left++] = keys[i];
    return left;
}

#endif
