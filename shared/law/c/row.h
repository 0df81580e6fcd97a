/* One row of logits, read block by block: its peaks and its weights. */

#ifndef DRAFTMESH_ROW_H
#define DRAFTMESH_ROW_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define BLOCK 128 /* ids that share a peak */
#define LEAST_NATS (-87.0f) /* e to anything below counts as 0: float32 has only denormal numbers there */

/* Code for the wider registers of x86-64 beside that for any, of which the loader picks. Nothing but speed differs,
   because every loop has a fixed order of additions and the compiler is told to contract nothing. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GLIBC__)
#define CLONED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONED
#endif

typedef struct {
    const float *values;
    const uint8_t *mask; /* null: everything may come */
    int64_t size, blocks;
    float *peaks; /* the largest value of each block */
    float top;    /* the largest of all */
} Row;

static inline float larger(float a, float b) { return a > b ? a : b; }

/* The block as it is in memory. The last one is filled up with minus infinity in `room`. */
static inline const float *raw_block(const Row *row, int64_t block, float *room) {
    int64_t start = block * BLOCK, left = row->size - start;
    if (left >= BLOCK)
        return row->values + start;
    for (int64_t i = 0; i < BLOCK; i++)
        room[i] = i < left ? row->values[start + i] : -INFINITY;
    return room;
}

static inline const float *allowed_block(const Row *row, int64_t block, const float *raw, float *room) {
    if (!row->mask)
        return raw;
    int64_t start = block * BLOCK, left = row->size - start;
    uint8_t rest[BLOCK] = {0};
    const uint8_t *mask = row->mask + start;
    if (left < BLOCK)
        mask = memcpy(rest, mask, (size_t)left);
    for (int i = 0; i < BLOCK; i++)
        room[i] = mask[i] ? raw[i] : -INFINITY;
    return room;
}

/* The block's values, minus infinity where the mask forbids; made in `room`, of a block's size, if need be. */
static const float *block_at(const Row *row, int64_t block, float *room) {
    return allowed_block(row, block, raw_block(row, block, room), room);
}

/* Fill peaks and top. 0 if a value is not a number or is +inf, whether the mask allows it or not. */
CLONED static int scan(Row *row) {
    float raw_room[BLOCK], room[BLOCK], peaks[BLOCK / 2];
    int all_fine = 1;
    row->top = -INFINITY;
    for (int64_t block = 0; block < row->blocks; block++) {
        const float *values = raw_block(row, block, raw_room);
        int fine = 1;
        for (int i = 0; i < BLOCK; i++)
            fine &= values[i] <= FLT_MAX;
        all_fine &= fine;
        values = allowed_block(row, block, values, room);
        for (int i = 0; i < 64; i++)
            peaks[i] = larger(values[i], values[i + 64]);
        for (int i = 0; i < 32; i++)
            peaks[i] = larger(peaks[i], peaks[i + 32]);
        for (int i = 0; i < 16; i++)
            peaks[i] = larger(peaks[i], peaks[i + 16]);
        for (int i = 0; i < 8; i++)
            peaks[i] = larger(peaks[i], peaks[i + 8]);
        for (int i = 0; i < 4; i++)
            peaks[i] = larger(peaks[i], peaks[i + 4]);
        row->peaks[block] = larger(larger(peaks[0], peaks[1]), larger(peaks[2], peaks[3]));
        row->top = larger(row->peaks[block], row->top);
    }
    return all_fine;
}

/* The lowest id with the largest value. */
static int64_t likeliest(const Row *row) {
    float room[BLOCK];
    int64_t block = 0, id = 0;
    while (row->peaks[block] != row->top)
        block++;
    const float *values = block_at(row, block, room);
    while (values[id] != row->top)
        id++;
    return block * BLOCK + id;
}

/* e^x for x <= 0, to two units in the last place. The polynomial is that of Cephes (Moshier 1992). */
static inline float exponential(float x) {
    float bounded = larger(x, LEAST_NATS);
    float shifted = bounded * 1.44269504f + 12582912.0f; /* its low bits are now the nearest whole power of 2 */
    float power = shifted - 12582912.0f;
    float rest = bounded - power * 0.693359375f + power * 2.12194440e-4f;
    float series = rest * 1.9875691500e-4f + 1.3981999507e-3f;
    series = series * rest + 8.3334519073e-3f;
    series = series * rest + 4.1665795894e-2f;
    series = series * rest + 1.6666665459e-1f;
    series = series * rest + 5.0000001201e-1f;
    series = series * (rest * rest) + rest + 1.0f;
    uint32_t bits, exponent;
    memcpy(&bits, &series, sizeof bits);
    memcpy(&exponent, &shifted, sizeof exponent);
    bits += exponent << 23;
    memcpy(&series, &bits, sizeof bits);
    return x >= LEAST_NATS ? series : 0.0f;
}

static inline void scaled_block(const Row *row, int64_t block, float temperature, float *scaled) {
    float room[BLOCK];
    const float *values = allowed_block(row, block, raw_block(row, block, room), room);
    for (int i = 0; i < BLOCK; i++)
        scaled[i] = values[i] - row->top;
    if (temperature != 1.0f)
        for (int i = 0; i < BLOCK; i++)
            scaled[i] /= temperature;
}

/* Add a block's weights to 32 sums: two additions in float32, then float64. */
static inline void add(double *sums, float *weights) {
    for (int i = 0; i < 64; i++)
        weights[i] += weights[i + 64];
    for (int i = 0; i < 32; i++)
        weights[i] += weights[i + 32];
    for (int i = 0; i < 32; i++)
        sums[i] += (double)weights[i];
}

/* e^((value - top) / temperature) of each value of a block. */
CLONED static void weights_of(const Row *row, int64_t block, float temperature, float *weights) {
    scaled_block(row, block, temperature, weights);
    for (int i = 0; i < BLOCK; i++)
        weights[i] = exponential(weights[i]);
}

/* The sum of the weights of the values within `nats` of the top, and of the others. */
CLONED static void weigh(const Row *row, float temperature, float nats, double *within, double *beyond) {
    float scaled[BLOCK], weights[BLOCK];
    double inside[32] = {0}, outside[32] = {0};
    for (int64_t block = 0; block < row->blocks; block++) {
        float best = (row->peaks[block] - row->top) / temperature;
        if (best < LEAST_NATS)
            continue;
        scaled_block(row, block, temperature, scaled);
        for (int i = 0; i < BLOCK; i++)
            weights[i] = exponential(scaled[i]);
        if (best >= -nats) {
            float apart[BLOCK];
            for (int i = 0; i < BLOCK; i++) {
                apart[i] = scaled[i] >= -nats ? weights[i] : 0.0f;
                weights[i] = scaled[i] >= -nats ? 0.0f : weights[i];
            }
            add(inside, apart);
        }
        add(outside, weights);
    }
    *within = *beyond = 0.0;
    for (int i = 0; i < 32; i++) {
        *within += inside[i];
        *beyond += outside[i];
    }
}

#endif
