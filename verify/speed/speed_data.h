/* speed_data.h - operands for speed.c: random weights in every storage the kernels read. */
#ifndef SW_VERIFY_SPEED_SPEED_DATA_H
#define SW_VERIFY_SPEED_SPEED_DATA_H

#include "verify/speed/speed.h"

#define SW_SPEED_COPIES_MAX 1024

/* A way to hold a weight that the bench measures. */
typedef struct sw_speed_store {
    const char *name;
    sw_dtype dense_dtype;   /* read when `num` is -1 */
    int num;                /* sw_num_id of tiles */
    sw_dtype scale_dtype;
    int64_t group_elems;    /* -1: what the options say */
    bool has_global;
    sw_act_scope act_scope; /* of the inputs, with what follows */
    int act_num;            /* sw_num_id */
    int64_t act_group_elems;
    sw_dtype act_scale_dtype;
} sw_speed_store;

#define SW_SPEED_BASELINE 0 /* f32, what OpenBLAS reads */
#define SW_SPEED_STORES_MAX 16
extern const sw_speed_store sw_speed_stores[];
extern const int sw_n_speed_stores;

/* Copies of one weight; one allocation per array, copies one after the other. */
typedef struct sw_speed_weights {
    const char *name;
    int n_copies;
    size_t copy_bytes;  /* what one product reads */
    uint8_t *codes;     /* or the dense elements */
    uint8_t *scales;
    uint8_t *zeros;
    sw_tiles tiles[SW_SPEED_COPIES_MAX];
    sw_weight weights[SW_SPEED_COPIES_MAX];
} sw_speed_weights;

/* Store `store` of sw_speed_stores. Random, finite, with scales that keep products near 1.
 * cache_bytes decides the copies. */
sw_code sw_speed_weights_new(sw_speed_weights *out, const sw_speed_options *options,
                             int store, int64_t cache_bytes, sw_err *err) SW_MUST_USE;
void sw_speed_weights_free(sw_speed_weights *w); /* accepts a zeroed one */

/* A view of 64 channels from n_tile * 64 on (fewer at the end); *tiles is its storage. */
sw_weight sw_speed_slice(const sw_weight *w, int64_t n_tile, sw_tiles *tiles);

void sw_speed_random_floats(float *dst, int64_t n, uint64_t seed);

#endif
