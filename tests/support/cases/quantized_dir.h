/* quantized_dir.h - a finished quantized checkpoint for tests, made of a model directory. */
#ifndef SW_TESTS_SUPPORT_CASES_QUANTIZED_DIR_H
#define SW_TESTS_SUPPORT_CASES_QUANTIZED_DIR_H

#include "quant/run/pipeline.h"

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

#endif
