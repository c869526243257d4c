/* quantized_lm.h - a model whose linears are quantized where they lie, for tests of engines. */
#ifndef SW_TESTS_SUPPORT_CASES_QUANTIZED_LM_H
#define SW_TESTS_SUPPORT_CASES_QUANTIZED_LM_H

#include "quant/run/pipeline.h"
#include "tests/support/toys/open_model.h"

typedef struct quantized_lm {
    open_model m;  /* its linears are tiles */
    sw_arena arena;
} quantized_lm;

/* Open `dir` and round every linear to `spec`; calib gives static input scales, or NULL where the
 * spec has none. Fails the running cmocka test on any error. */
void quantized_lm_open(quantized_lm *out, const char *dir, const sw_qspec *spec,
                       const sw_calib *calib);
void quantized_lm_close(quantized_lm *q);
/* Leave the inputs of all linears as they are. */
void quantized_lm_drop_acts(quantized_lm *q);

#endif
