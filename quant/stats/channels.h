/* channels.h - how large each channel of an input gets: what activation scales are made from. */
#ifndef SW_QUANT_STATS_CHANNELS_H
#define SW_QUANT_STATS_CHANNELS_H

#include <stdint.h>

#include "formats/base/mem.h"

typedef struct sw_channels {
    int64_t k_in, n_tokens;
    float *abs_max;  /* [k_in] */
    double *abs_sum; /* [k_in] */
} sw_channels;

sw_code sw_channels_new(sw_channels *out, int64_t k_in, sw_err *err) SW_MUST_USE;
void sw_channels_free(sw_channels *channels); /* accepts a zeroed one */
/* x [n_tokens, k_in], finite. */
void sw_channels_add(sw_channels *channels, const float *x, int64_t n_tokens);
/* into += from, of one width; or both are empty. */
void sw_channels_merge(sw_channels *into, const sw_channels *from);

#endif
