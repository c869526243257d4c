/* patched_model.h - a toy model with other values in some of its tensors or in its config.
 *
 * The fixtures of some families have zeros where published models have numbers: what is read from
 * the wrong place would not show.
 */
#ifndef SW_TESTS_SUPPORT_TOYS_PATCHED_MODEL_H
#define SW_TESTS_SUPPORT_TOYS_PATCHED_MODEL_H

#include <stdbool.h>
#include <stdint.h>

/* Copies config.json and model.safetensors of `from` into the new directory `dir`; tensors whose
 * name ends with `end`, all bf16, get normal values of this size. Fails the running test when
 * there are none. */
void patched_model_make(const char *dir, const char *from, const char *end, double size,
                        uint64_t seed);
/* The same with rows (or columns) [first, first + n) of the bf16 tensor `name` times `factor`, all
 * rounded again. */
void patched_scale_make(const char *dir, const char *from, const char *name, bool is_column,
                        int64_t first, int64_t n, double factor);
/* The same with the first text `have` of the config replaced by `want` instead. */
void patched_config_make(const char *dir, const char *from, const char *have, const char *want);
/* The same with `prefix` taken off the names of all tensors that have it. */
void patched_names_make(const char *dir, const char *from, const char *prefix);

/* A model that computes what another does, with outliers in its activations. */

/* Write `out_dir`: the weights of the Llama-like model in source_dir as F32, with n_channels
 * random channels of every norm before a linear multiplied by `factor` and the columns that read
 * them divided by it; config.json comes along. Fails the running cmocka test on any error. */
void outlier_model_make(const char *out_dir, const char *source_dir, int n_channels, double factor,
                        uint64_t seed);

#endif
