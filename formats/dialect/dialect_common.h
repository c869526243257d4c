/* dialect_common.h - what the dialect rows share; for formats/dialect only. */
#ifndef SW_FORMATS_DIALECT_DIALECT_COMMON_H
#define SW_FORMATS_DIALECT_DIALECT_COMMON_H

#include "formats/dialect/dialect.h"

#define SW_DIALECT(symbol, place) extern const sw_dialect sw_dialect_##symbol;
#include "formats/dialect/dialects.def"
#undef SW_DIALECT

sw_part sw_part_single(const char *suffix, sw_dtype dtype); /* without dimensions */
sw_part sw_part_1d(const char *suffix, sw_dtype dtype, int64_t a);
sw_part sw_part_2d(const char *suffix, sw_dtype dtype, int64_t a, int64_t b);
sw_part sw_part_3d(const char *suffix, sw_dtype dtype, int64_t a, int64_t b, int64_t c);

sw_dtype sw_scale_dtype_f16(sw_dtype model_dtype);          /* F16, whatever the model */
sw_dtype sw_scale_dtype_like_model(sw_dtype model_dtype);   /* BF16 for BF16, else F16 */

/* Scales [n_out, n_groups] to and from stored order; is_transposed: [n_groups, n_out]. */
void sw_scales_store(void *dst, const sw_qtensor *q, bool is_transposed);
void sw_scales_load(sw_qtensor *q, const void *src, bool is_transposed);

/* The rule all dialects share: a width with a row, groups that divide k_in.
 * SW_E_UNSUPPORTED names the dialect and a remedy. */
sw_code sw_hold_groups(const char *dialect, const sw_qspec *spec, int64_t k_in, sw_err *err);

/* Only that: group sizes divide k_in. And that the weight is integers under scales of their own,
 * with inputs as they are: what the older dialects know. */
sw_code sw_hold_division(const char *dialect, const sw_qspec *spec, int64_t k_in, sw_err *err);
sw_code sw_hold_classic(const char *dialect, const sw_qspec *spec, sw_err *err);
/* And that groups are of neighbouring columns. */
sw_code sw_hold_neighbours(const char *dialect, const sw_qspec *spec, sw_err *err);
/* The same of a tensor that comes with a g_idx; remedy: "", or "; " and what to do. */
sw_code sw_encode_neighbours(const char *dialect, const sw_qtensor *q, const char *remedy,
                             sw_err *err);
bool sw_spec_is_classic(const sw_qspec *spec);

/* Stored I32 [k_in], the group of each column. load keeps it, and says is_scattered, only when it
 * says more than the group size does; SW_E_FORMAT: a group that there is not. */
void sw_g_idx_store(void *dst, const sw_qtensor *q);
sw_code sw_g_idx_load(sw_qtensor *q, const void *src, sw_err *err);

/* Stored I64 [n_out, k_in] against the weight it came with. */
void sw_shape_store(void *dst, const sw_qtensor *q);
sw_code sw_shape_check(const void *src, const char *suffix, int64_t n_out, int64_t k_in,
                       sw_err *err);

/* Bits -> number row; SW_E_UNSUPPORTED lists the widths there are. */
sw_code sw_config_bits(const sw_num **out, int64_t bits, sw_err *err);
/* "bits" (or those of *num) into a row of that width: of integers, or where "weights" names the
 * format of any kind, until sw_config_read_beyond reads the name. */
sw_code sw_config_read_bits(const sw_num **num, const cJSON *object, sw_err *err);
/* "group_size": -1 or null is one group per channel, else a positive multiple of 8. */
sw_code sw_config_group(int64_t *out, const cJSON *object, const char *key, sw_err *err);
int64_t sw_config_group_value(const sw_qspec *spec); /* -1 for one group per channel */

/* A list of paths (or patterns, "re:...") by the name of `key` into out->ignore. */
sw_code sw_config_read_ignore(sw_qconfig *out, const cJSON *object, const char *key,
                              sw_arena *arena, sw_err *err);

/* How a list names a module with all that is below it. */
typedef enum sw_below {
    SW_BELOW_PATHS,  /* one by one: no other way is known */
    SW_BELOW_REGEX,  /* "re:^mtp.*" */
    SW_BELOW_STAR    /* "mtp*" */
} sw_below;
/* config->ignore and extra_heads as a list by the name of `key`; with_head: the head in any case,
 * for loaders that would look for it quantized. false when memory is out. */
bool sw_config_add_ignored(cJSON *object, const char *key, const sw_qconfig *config,
                           bool with_head, sw_below below);
/* The module of config->extra_heads, or of whole_experts, that a path is or lies below, or NULL. */
const char *sw_config_extra_head(const sw_qconfig *config, const char *path);
const char *sw_config_whole_experts(const sw_qconfig *config, const char *path);
/* A regular expression, anchored at the start, for a module and all below it. */
#define SW_BELOW_BYTES 600
void sw_config_below_regex(char out[SW_BELOW_BYTES], const char *module);

/* The keys of an integer scheme: "bits", "group_size" (-1: one group per channel), "sym", and
 * "outliers", the number of channels, when there are any. */
bool sw_config_add_spec(cJSON *object, const sw_qspec *spec);
/* Read them over what *spec has; absent keys leave it. */
sw_code sw_config_read_spec(sw_qspec *spec, const cJSON *object, sw_err *err);
sw_code sw_config_read_shape(sw_qspec *spec, const cJSON *object, sw_err *err); /* all but "bits" */
/* What goes beyond them, see config_beyond.c; absent keys leave *spec. */
bool sw_config_add_beyond(cJSON *object, const sw_qspec *spec);
sw_code sw_config_read_beyond(sw_qspec *spec, const cJSON *object, sw_err *err);
/* Same scheme, and both with a g_idx or both without. */
bool sw_config_is_one(const sw_qspec *a, const sw_qspec *b);
/* SW_E_UNSUPPORTED names a linear whose scheme is not config->spec. */
sw_code sw_config_one_scheme(const char *dialect, const sw_qconfig *config, const char *elsewhere,
                             sw_err *err);
/* true when no rule before config->rules[at] has its scheme. */
bool sw_config_is_first(const sw_qconfig *config, int64_t at);

/* Does an object name this "quant_method"? */
bool sw_config_method_is(const cJSON *object, const char *method);

/* Finish a built object: hand it over, or free it and report that memory ran out. */
sw_code sw_config_done(cJSON **out, cJSON *object, bool is_complete, sw_err *err);
/* Append text to an array; false when memory is out. */
bool sw_config_append(cJSON *array, const char *text);

#endif
