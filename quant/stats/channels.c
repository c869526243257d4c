/* channels.c - see channels.h. */
#include "quant/stats/channels.h"

#include <math.h>
#include <string.h>

sw_code sw_channels_new(sw_channels *out, int64_t k_in, sw_err *err)
{
    sw_channels c = {.k_in = k_in};
    sw_code rc;

    if ((rc = SW_MEM_GET(&c.abs_max, k_in, "channel maxima", err)) != SW_OK ||
        (rc = SW_MEM_GET(&c.abs_sum, k_in, "channel means", err)) != SW_OK)
        sw_channels_free(&c);
    else
        *out = c;
    return rc;
}

void sw_channels_free(sw_channels *channels)
{
    sw_mem_put(channels->abs_max);
    sw_mem_put(channels->abs_sum);
    memset(channels, 0, sizeof *channels);
}

void sw_channels_add(sw_channels *channels, const float *x, int64_t n_tokens)
{
    int64_t k = channels->k_in;

    for (int64_t t = 0; t < n_tokens; t++)
        for (int64_t j = 0; j < k; j++) {
            float size = fabsf(x[t * k + j]);
            if (size > channels->abs_max[j]) channels->abs_max[j] = size;
            channels->abs_sum[j] += (double)size;
        }
    channels->n_tokens += n_tokens;
}

void sw_channels_merge(sw_channels *into, const sw_channels *from)
{
    for (int64_t j = 0; j < into->k_in; j++) {
        into->abs_max[j] = fmaxf(into->abs_max[j], from->abs_max[j]);
        into->abs_sum[j] += from->abs_sum[j];
    }
    into->n_tokens += from->n_tokens;
}
