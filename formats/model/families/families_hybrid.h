/* families_hybrid.h - pieces that readers of hybrid decoders' config keys are made of; inside
 * formats/model.
 */
#ifndef SW_FORMATS_MODEL_FAMILIES_FAMILIES_HYBRID_H
#define SW_FORMATS_MODEL_FAMILIES_FAMILIES_HYBRID_H

#include "formats/model/model.h"

/* What a config calls a kind of layer. */
typedef struct sw_layer_word {
    const char *word;
    uint8_t kind; /* in the family's sw_kinds */
} sw_layer_word;
/* The list `key`, a word for each layer, into model->kind. SW_E_UNSUPPORTED names another word. */
sw_code sw_hybrid_words(sw_model *model, const cJSON *config, const char *key,
                        const sw_layer_word *words, int n_words, sw_err *err) SW_MUST_USE;

/* The list `key` names the layers that have attention; the others are recurrent. */
sw_code sw_hybrid_attention_list(sw_model *model, const cJSON *config, const char *key,
                                 sw_err *err) SW_MUST_USE;

typedef struct sw_hybrid_size {
    int64_t *out;
    const char *key;
    int64_t when_absent, max; /* 0: the key must be there */
} sw_hybrid_size;
/* Sizes of at least 1. SW_E_FORMAT names the key. */
sw_code sw_hybrid_sizes(const sw_hybrid_size *sizes, int n, const cJSON *config,
                        sw_err *err) SW_MUST_USE;
/* SW_E_FORMAT unless the groups of experts are equal, of 2 or more, and those used hold the experts
 * that a token gets. */
sw_code sw_hybrid_check_groups(const sw_model *model, const char *key, sw_err *err) SW_MUST_USE;
/* SW_E_FORMAT unless the mixer's groups divide its heads. */
sw_code sw_hybrid_check_heads(const sw_model *model, const char *heads_key, const char *groups_key,
                              sw_err *err) SW_MUST_USE;

#endif
