/* outlier_model.h - a model that computes what another does, with outliers in its activations. */
#ifndef SW_TESTS_SUPPORT_TOYS_OUTLIER_MODEL_H
#define SW_TESTS_SUPPORT_TOYS_OUTLIER_MODEL_H

#include <stdint.h>

/* Write `out_dir`: the weights of the Llama-like model in source_dir as F32, with n_channels
 * random channels of every norm before a linear multiplied by `factor` and the columns that read
 * them divided by it; config.json comes along. Fails the running cmocka test on any error. */
void outlier_model_make(const char *out_dir, const char *source_dir, int n_channels, double factor,
                        uint64_t seed);

#endif
