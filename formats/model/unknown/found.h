/* found.h - the linears of a family without a row, told by the names and shapes of tensors.
 *
 * A decoder keeps its layers in a numbered list: "<anything>.layers.7.<module>.weight". What lies
 * in such a list, has two dimensions and the name of no router, gate, norm, table or convolution is
 * a linear [n_out, k_in]. What lies elsewhere is a table, a head or a tower. All experts in one
 * tensor are taken apart where its shape and config.json leave one way to read it.
 */
#ifndef SW_FORMATS_MODEL_UNKNOWN_FOUND_H
#define SW_FORMATS_MODEL_UNKNOWN_FOUND_H

#include "formats/model/model.h"

/* A module that is stored in codes, with the shape of its weight. */
typedef struct sw_coded_module {
    const char *path;
    int64_t n_out, k_in;
} sw_coded_module;

/* Set m->found, m->n_layers where config.json is silent, and the names of the ends. Everything is
 * taken from the arena; names are the containers' own. SW_E_FORMAT: a layer's number beyond
 * SW_LAYERS_MAX; SW_E_NOMEM. */
sw_code sw_found_new(sw_model *m, const sw_st *st, const sw_coded_module *coded, int64_t n_coded,
                     sw_arena *arena, sw_err *err) SW_MUST_USE;
/* The rows of `name`, all experts' gates and ups or downs of a layer, decided by shapes:
 * -1 channels, 1 inputs; 0: *why says what leaves it open. */
int sw_found_way_round(const char **why, const sw_model *m, const sw_st *st, const char *name);

#endif
