/* The head of a law, its noise, and which ids score best. */

#ifndef DRAFTMESH_HEAD_H
#define DRAFTMESH_HEAD_H

#include "keys.h"
#include "row.h"

#define HEAD_NATS 12.0f
#define GOLDEN 0x9E3779B97F4A7C15u
#define LUMP UINT64_MAX /* the noise keys of the lump and of the choice inside it; no token has these ids */
#define INSIDE (UINT64_MAX - 1)

typedef struct {
    int32_t *ids;
    double *logp;
    int64_t size;
    double lump; /* the log-probability of all other ids; minus infinity: there are none */
} Head;

static void head_of_survivors(Head *head, uint64_t *keys, int64_t size, double temperature) {
    double highest = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < size; i++)
        keys[i] = keys[i] << 32 | keys[i] >> 32; /* by id */
    sort(keys, size);
    for (int64_t i = 0; i < size; i++) {
        uint64_t key = keys[i] << 32 | keys[i] >> 32;
        head->ids[i] = (int32_t)id_of(key);
        head->logp[i] = (double)value_of(key) / temperature;
        highest = head->logp[i] > highest ? head->logp[i] : highest;
    }
    for (int64_t i = 0; i < size; i++)
        sum += exp(head->logp[i] -= highest);
    for (int64_t i = 0; i < size; i++)
        head->logp[i] -= log(sum);
    head->size = size;
    head->lump = -INFINITY;
}

static void head_of_all(Head *head, const Row *row, float temperature) {
    float room[BLOCK];
    double within, beyond;
    weigh(row, temperature, HEAD_NATS, &within, &beyond);
    double log_mass = log(within + beyond);
    head->size = 0;
    head->lump = beyond > 0.0 ? log(beyond) - log_mass : -INFINITY;
    for (int64_t block = 0; block < row->blocks; block++) {
        if ((row->peaks[block] - row->top) / temperature < -HEAD_NATS)
            continue;
        const float *values = block_at(row, block, room);
        for (int i = 0; i < BLOCK; i++) {
            float scaled = (values[i] - row->top) / temperature;
            if (scaled >= -HEAD_NATS) {
                head->ids[head->size] = (int32_t)(block * BLOCK + i);
                head->logp[head->size++] = scaled - log_mass;
            }
        }
    }
}


static uint64_t noise_key(uint64_t seed, int64_t offset) {
    return mix(mix(seed + GOLDEN) + (uint64_t)(offset + 1) * GOLDEN);
}

static double uniform(uint64_t hash) { return ((double)(hash >> 11) + 0.5) * 0x1p-53; }

static double gumbel(uint64_t key, uint64_t id) { return -log(-log(uniform(mix(id * GOLDEN + key)))); }

/* A bound that costs no logarithm: -log(-log u) <= -log(1 - u), and 1 - u is at least its own power of 2. */
static double most(uint64_t key, uint64_t id) {
    double left = uniform(~mix(id * GOLDEN + key));
    uint64_t bits;
    memcpy(&bits, &left, sizeof bits);
    return (1023.0 - (double)(bits >> 52)) * 0.6931471805599454 + 1e-9;
}

/* The `count` ids with the best scores, best first, and of equal ones the lower id. Returns how many there are. */
static int64_t drawn(const Head *head, uint64_t key, int64_t count, int64_t *ids, double *scores) {
    int64_t found = 0;
    for (int64_t i = 0; i < head->size; i++) {
        uint64_t id = (uint64_t)head->ids[i];
        if (found == count && head->logp[i] + most(key, id) < scores[count - 1])
            continue;
        double score = head->logp[i] + gumbel(key, id);
        int64_t place = found < count ? found++ : count;
        if (place == count && !(score > scores[--place]))
            continue;
        for (; place && score > scores[place - 1]; place--) {
            ids[place] = ids[place - 1];
            scores[place] = scores[place - 1];
        }
        ids[place] = (int64_t)id;
        scores[place] = score;
    }
    return found;
}

/* One id of the lump, by the inverse of its cumulative distribution at a keyed uniform. */
static int64_t inside_lump(const Row *row, float temperature, uint64_t key) {
    float weights[BLOCK], room[BLOCK];
    double sum = 0.0, goal = INFINITY;
    int64_t id = 0;
    for (int round = 0; round < 2; round++) {
        sum = 0.0;
        for (int64_t block = 0; block < row->blocks; block++) {
            weights_of(row, block, temperature, weights);
            const float *values = block_at(row, block, room);
            for (int i = 0; i < BLOCK; i++) {
                if (weights[i] == 0.0f || (values[i] - row->top) / temperature >= -HEAD_NATS)
                    continue;
                id = block * BLOCK + i;
                if ((sum += weights[i]) > goal)
                    return id;
            }
        }
        goal = uniform(mix(INSIDE * GOLDEN + key)) * sum;
    }
    return id;
}

#endif
