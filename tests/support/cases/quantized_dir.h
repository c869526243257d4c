/* quantized_dir.h - a finished quantized checkpoint for tests, made of a model directory. */
#ifndef SW_TESTS_SUPPORT_CASES_QUANTIZED_DIR_H
#define SW_TESTS_SUPPORT_CASES_QUANTIZED_DIR_H

#include "quant/run/pipeline.h"
#include "tests/support/toys/open_model.h"

/* Writes `out_dir`; fails the running cmocka test on any error. */
void quantized_dir_make(const char *out_dir, const char *source_dir, const char *dialect, int bits,
                        bool is_symmetric, int64_t group_elems);
/* The same by gptq, from calibration tokens. */
void quantized_dir_calibrate(const char *out_dir, const char *source_dir, const char *dialect,
                             int bits, bool is_symmetric, int64_t group_elems,
                             const sw_calib *calib);

/* The same by any method, on random tokens where calib is NULL; the manifest lists transforms. */
void quantized_dir_by(const char *out_dir, const char *source_dir, const char *dialect, int bits,
                      bool is_symmetric, int64_t group_elems, const sw_algo *algo,
                      const sw_calib *calib);

/* By plain rounding, in a scheme of `swage list schemes` whose inputs need no stored scale. */
void quantized_dir_of_scheme(const char *out_dir, const char *source_dir, const char *dialect,
                             const char *scheme);

/* A model whose linears are quantized where they lie, for tests of engines. */

typedef struct quantized_lm {
    open_model m;  /* its linears are tiles */
    sw_arena arena;
} quantized_lm;

/* Open `dir` and round every linear to `spec`; calib gives static input scales, or NULL where the
 * spec has none. Fails the running cmocka test on any error. */
void quantized_lm_open(quantized_lm *out, const char *dir, const sw_qspec *spec,
                       const sw_calib *calib);
void quantized_lm_close(quantized_lm *q);
/* Codes of 2 and 3 bits in the container of 4 bits, outside of experts. */
void quantized_lm_widen(quantized_lm *q);
/* Leave the inputs of all linears as they are. */
void quantized_lm_drop_acts(quantized_lm *q);

#endif
