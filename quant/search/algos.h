/* algos.h - the table of methods: algos.def with the transforms of awq.c and smooth.c. */
#ifndef SW_QUANT_SEARCH_ALGOS_H
#define SW_QUANT_SEARCH_ALGOS_H

#include "quant/method/algo.h"

extern const sw_algo sw_algos[];
extern const int sw_n_algos;
const sw_algo *sw_algo_find(const char *name); /* NULL when unknown */

#endif
