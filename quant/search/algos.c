/* algos.c - see algo.h. */
#include "quant/method/algo.h"

#include <string.h>

#include "quant/search/transform.h"

#define TRANSFORM_none NULL
#define TRANSFORM_awq &sw_transform_awq
#define TRANSFORM_smooth &sw_transform_smooth

const sw_algo sw_algos[] = {
#define SW_ALGO(name, needs, repairs, transform, fn, text) \
    {name, text, needs, repairs, TRANSFORM_##transform, fn},
#include "quant/search/algos.def"
#undef SW_ALGO
};

const int sw_n_algos = (int)(sizeof sw_algos / sizeof sw_algos[0]);

const sw_algo *sw_algo_find(const char *name)
{
    for (int i = 0; i < sw_n_algos; i++)
        if (!strcmp(sw_algos[i].name, name)) return &sw_algos[i];
    return NULL;
}
