/* A value and its id in one number: the smaller, the better, and of equal values the lower id. */

#ifndef DRAFTMESH_KEYS_H
#define DRAFTMESH_KEYS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint64_t key_of(float value, int64_t id) {
    uint32_t bits;
    value += 0.0f; /* minus zero is zero */
    memcpy(&bits, &value, sizeof bits);
    bits = bits >> 31 ? bits : ~(bits | 0x80000000u);
    return (uint64_t)bits << 32 | (uint32_t)id;
}

static float value_of(uint64_t key) {
    uint32_t bits = (uint32_t)(key >> 32);
    bits = bits >> 31 ? bits : ~bits & 0x7FFFFFFFu;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int64_t id_of(uint64_t key) { return (uint32_t)key; }

static int compare(const void *a, const void *b) {
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

/* Sort byte by byte, from the lowest; bytes that all keys share cost no pass. Few keys are compared instead. */
static void sort(uint64_t *keys, int64_t size) {
    uint64_t *from = keys, *room = size < 256 ? NULL : malloc((size_t)size * sizeof *keys), *to = room;
    if (!room) {
        qsort(keys, (size_t)size, sizeof *keys, compare);
        return;
    }
    for (int shift = 0; shift < 64; shift += 8) {
        int64_t places[256] = {0}, start = 0;
        for (int64_t i = 0; i < size; i++)
            places[from[i] >> shift & 255]++;
        if (places[from[0] >> shift & 255] == size)
            continue;
        for (int byte = 0; byte < 256; byte++) {
            int64_t count = places[byte];
            places[byte] = start;
            start += count;
        }
        for (int64_t i = 0; i < size; i++)
            to[places[from[i] >> shift & 255]++] = from[i];
        uint64_t *sorted = to;
        to = from;
        from = sorted;
    }
    if (from != keys)
        memcpy(keys, from, (size_t)size * sizeof *keys);
    free(room);
}

static uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}

/* Bring the `count` smallest of different keys to the front. Scattered pivots, so that no order of them is slow. */
static void select_smallest(uint64_t *keys, int64_t size, int64_t count) {
    int64_t low = 0, high = size - 1;
    while (low < high) {
        uint64_t pivot = keys[low + (int64_t)(mix((uint64_t)(low + high)) % (uint64_t)(high - low + 1))];
        int64_t left = low, right = high;
        while (left <= right) {
            while (keys[left] < pivot)
                left++;
            while (keys[right] > pivot)
                right--;
            if (left <= right) {
                uint64_t moved = keys[left];
                keys[left++] = keys[right];
                keys[right--] = moved;
            }
        }
        if (count <= right)
            high = right;
        else if (count > left)
            low = left;
        else
            return;
    }
}

#endif
