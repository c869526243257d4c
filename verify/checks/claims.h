/* claims.h - which linears a quantization_config says are quantized, as engines read it.
 *
 * A loader makes room for codes by what the config says, and looks for them afterwards: lists that
 * name too much or too little make it refuse, or run with weights that were never filled. Each
 * dialect has its own lists and its own way to match a name, all of them read here a second time.
 */
#ifndef SW_VERIFY_CHECKS_CLAIMS_H
#define SW_VERIFY_CHECKS_CLAIMS_H

#include "verify/base/subject.h"

typedef enum sw_claim {
    SW_CLAIM_UNKNOWN, /* the config is silent, and engines differ */
    SW_CLAIM_CODES,
    SW_CLAIM_FLOATS
} sw_claim;

/* What the config says of one linear; `why` is what decides, a text that lives as long as the
 * config. SW_E_FORMAT: a list that is none, a pattern that is none; SW_E_NOMEM. */
sw_code sw_claim_of(sw_claim *out, const char **why, const sw_subject *s,
                    const sw_subject_linear *l, sw_err *err) SW_MUST_USE;
/* compressed-tensors says per group how codes are laid out. The name of the format that the config
 * has for this linear, where what is stored is another one; else NULL. */
sw_code sw_claim_wrong_format(const char **out, const sw_subject *s, const sw_subject_linear *l,
                              sw_err *err) SW_MUST_USE;

#endif
