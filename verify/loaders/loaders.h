/* loaders.h - how the engines that people deploy would load a checkpoint.
 *
 * Each engine refuses some files that are valid, or reads wrong values from them. The rules are in
 * loaders.def, one row each: which engines, what happens, what helps. They are applied to finished
 * files: after writing, by verify and by inspect.
 */
#ifndef SW_VERIFY_LOADERS_LOADERS_H
#define SW_VERIFY_LOADERS_LOADERS_H

#include "formats/checkpoint/checkpoint.h"

typedef enum sw_load_effect {
    SW_LOAD_REFUSED, /* the engine stops with an error */
    SW_LOAD_MISREAD, /* it runs with wrong values */
    SW_LOAD_LIMITED, /* it runs, but slower, less exactly, or not on several GPUs */
    SW_LOAD_EFFECT_COUNT
} sw_load_effect;

typedef struct sw_load_rule {
    const char *id;      /* "fused-scheme" */
    const char *engines; /* "vLLM, SGLang" */
    sw_load_effect effect;
    const char *consequence, *remedy; /* half sentences */
} sw_load_rule;

extern const sw_load_rule sw_load_rules[];
extern const int sw_n_load_rules;
const char *sw_load_effect_name(sw_load_effect effect); /* "refused", ... */

/* A rule that is broken: where first, and how often. */
typedef struct sw_load_finding {
    const sw_load_rule *rule;
    const char *subject, *detail;
    int64_t n_subjects;
} sw_load_finding;

typedef struct sw_load_findings {
    sw_load_finding *at; /* in the order of the rules; at most one a rule */
    int64_t n;
    sw_arena arena;
} sw_load_findings;

/* All rules against an opened checkpoint, quantized or not. SW_E_NOMEM; otherwise only what keeps
 * the index of the shards from being read. */
sw_code sw_loaders_check(sw_load_findings *out, const sw_checkpoint *ckpt, sw_err *err) SW_MUST_USE;
/* "vLLM, SGLang: refused: WHERE (and 3 more): DETAIL; what happens; what helps" into `text`. */
#define SW_LOAD_TEXT_BYTES 1200
const char *sw_load_text(char text[SW_LOAD_TEXT_BYTES], const sw_load_finding *finding);
/* An array "loaders" in `object`; false when memory is out. */
bool sw_loaders_json(cJSON *object, const sw_load_findings *findings);
void sw_loaders_free(sw_load_findings *findings); /* accepts a zeroed one */

#endif
