/* kv_scales.h - the scales of a quantized cache, as a checkpoint stores them. */
#ifndef SW_VERIFY_METRICS_KV_SCALES_H
#define SW_VERIFY_METRICS_KV_SCALES_H

#include "verify/base/report.h"
#include "verify/base/subject.h"

/* A finding for each of "<attention>.k_scale" and ".v_scale" that is no float above zero, and for
 * each that is missing where another layer or the config (kv_cache_scheme) has them. */
sw_code sw_verify_kv_scales(sw_report *report, const sw_subject *checkpoint,
                            sw_err *err) SW_MUST_USE;
/* true when `suffix` at module `path` is such a scale. */
bool sw_is_kv_scale(const sw_subject *checkpoint, const char *path, const char *suffix);

#endif
