/* checks.h - what verify.c has checked of a checkpoint besides its metrics. Each check adds
 * findings to the report, in the words that its comment gives. */
#ifndef SW_VERIFY_CHECKS_CHECKS_H
#define SW_VERIFY_CHECKS_CHECKS_H

#include "formats/base/progress.h"
#include "verify/base/report.h"
#include "verify/base/subject.h"
#include "verify/metrics/rescale.h"

/* Every stored tensor judged: quantized ones decoded and compared with the original,
 * all others held to be the original's bytes. */

/* Fill report->tensors (one per quantized linear, in block order) and add findings: "decode" for
 * what breaks the layout, "missing" for a linear that is not there, "implausible" for what
 * rounding cannot explain. `original` may be NULL; `rescale` is its relation to the checkpoint,
 * zeroed where there is none, whose evidence is added up here. Memory: a few linears at a time. */
sw_code sw_verify_tensors(sw_report *report, const sw_subject *checkpoint,
                          const sw_subject *original, sw_rescale *rescale, int n_threads,
                          const sw_progress *progress, sw_err *err) SW_MUST_USE;

/* Fill report->coverage and add findings: "missing", "differs", "unexpected". */
sw_code sw_verify_coverage(sw_report *report, const sw_subject *checkpoint,
                           const sw_subject *original, const sw_rescale *rescale,
                           sw_err *err) SW_MUST_USE;

/* Linears that a checkpoint holds in floats and its original in codes.
 *
 * Written out of codes, a weight is the value that the codes stand for, rounded to the dtype it is
 * stored in. Nothing else explains it. */

/* Findings "differs" name the linear and the first element that is another. */
sw_code sw_verify_float_linears(sw_report *report, const sw_subject *checkpoint,
                                const sw_subject *original, const sw_progress *progress,
                                sw_err *err) SW_MUST_USE;
/* true when `path` is such a linear. */
bool sw_is_float_linear(const sw_subject *checkpoint, const sw_subject *original, const char *path);

/* Is the checkpoint one thing only, and the thing that its config says it is?
 *
 * Checks that need no original: linears stored as the config tells engines, nothing stored twice,
 * no scale that the scheme has no use for, numbers that are finite, a tied head that is tied. */

/* Findings: "config" where what is stored is not what the config says, "twice" for a linear in two
 * forms, "unexpected" for a part of no use, "not finite", "differs" for a head. */
sw_code sw_verify_structure(sw_report *report, const sw_subject *checkpoint, int n_threads,
                            sw_err *err) SW_MUST_USE;

/* The same for linears of the decoder that are none of a layer's, such as Gemma 4's projection
 * before the layers: findings "config" where they are stored in floats and the config tells
 * engines otherwise. Routers and what chooses keys are left out, which engines know for floats,
 * and so is what `original` (or NULL) has not: that is unexpected. */
sw_code sw_verify_unlisted(sw_report *report, const sw_subject *checkpoint,
                           const sw_subject *original, sw_err *err) SW_MUST_USE;

/* The same for fields of config_groups (compressed-tensors, modelopt) that contradict others or
 * what is stored, so that engines refuse a checkpoint or misread it although it can be decoded:
 * findings "config", one a field. A remark where no engine goes by the field, and where the scheme
 * of Swage tiles is that of no linear. */
sw_code sw_verify_config_groups(sw_report *report, const sw_subject *checkpoint,
                                sw_err *err) SW_MUST_USE;

/* Does config.json describe the same model as the original's config.json?
 *
 * The two are compared twice. First as model descriptions, in which an absent key has the default
 * of its family: every field that changes what is computed must be equal. Then key by key, since
 * engines read keys that this program does not. A key that differs is a finding unless it is known
 * to change nothing; a key that only one of them has is a finding unless it is empty or belongs to
 * the model description, which the first comparison covers. The config.json of a GGUF is made by
 * the reader, so it is compared in the first way only. */

/* Architecture and sizes of tensors: findings "config" where they differ, and *are_same false. Of
 * two such models nothing else can be compared. */
sw_code sw_verify_sizes(bool *are_same, sw_report *report, const sw_subject *checkpoint,
                        const sw_subject *original, sw_err *err) SW_MUST_USE;
/* All else that changes what is computed: findings "config", one a field. */
sw_code sw_verify_config(sw_report *report, const sw_subject *checkpoint,
                         const sw_subject *original, sw_err *err) SW_MUST_USE;

/* The files around the weights: tokenizer, generation config, chat template, code.
 *
 * Files that are not JSON must be equal to the original's; JSON must mean the same (json_diff.h).
 * A missing file that engines can do without is a remark. Weights that this program does not
 * load, but other loaders do, are found too. */

/* Findings: "broken" for a file that does not parse; with an original, "missing" and "differs";
 * "unexpected" for tensors and code that are in the directory besides. `original` may be NULL. */
sw_code sw_verify_side_files(sw_report *report, const sw_subject *checkpoint,
                             const sw_subject *original, sw_err *err) SW_MUST_USE;

/* A checkpoint whose model_type no row describes: its weights can be judged, its logits not. */

/* Sets which linears there are, of both, and the report's note. `original` may be NULL. Nothing for
 * other families. SW_E_UNSUPPORTED: the options ask for a text or tasks. A finding "not judged" for
 * each module in codes that the original does not have as a linear. */
sw_code sw_verify_family(sw_report *report, sw_subject *checkpoint, sw_subject *original,
                         const sw_verify_options *options, sw_err *err) SW_MUST_USE;

/* The scales of a quantized cache, as a checkpoint stores them. */

/* A finding for each of "<attention>.k_scale" and ".v_scale" that is no float above zero, and for
 * each that is missing where another layer or the config (kv_cache_scheme) has them. */
sw_code sw_verify_kv_scales(sw_report *report, const sw_subject *checkpoint,
                            sw_err *err) SW_MUST_USE;
/* true when `suffix` at module `path` is such a scale. */
bool sw_is_kv_scale(const sw_subject *checkpoint, const char *path, const char *suffix);
/* true when such a scale of the original may be what it is in the checkpoint: one found anew, for a
 * range near that of the original's, or none where its config cannot say that it is for int8. */
bool sw_kv_scale_is_own(const sw_subject *checkpoint, const sw_subject *original, const char *path,
                        const char *suffix);

#endif
