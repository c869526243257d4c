/* config_check.h - does config.json describe the same model as the original's config.json?
 *
 * The two are compared twice. First as model descriptions, in which an absent key has the default
 * of its family: every field that changes what is computed must be equal. Then key by key, since
 * engines read keys that this program does not. A key that differs is a finding unless it is known
 * to change nothing; a key that only one of them has is a finding unless it is empty or belongs to
 * the model description, which the first comparison covers. The config.json of a GGUF is made by
 * the reader, so it is compared in the first way only.
 */
#ifndef SW_VERIFY_CHECKS_CONFIG_CHECK_H
#define SW_VERIFY_CHECKS_CONFIG_CHECK_H

#include "verify/base/report.h"
#include "verify/base/subject.h"

/* Architecture and sizes of tensors: findings "config" where they differ, and *are_same false. Of
 * two such models nothing else can be compared. */
sw_code sw_verify_sizes(bool *are_same, sw_report *report, const sw_subject *checkpoint,
                        const sw_subject *original, sw_err *err) SW_MUST_USE;
/* All else that changes what is computed: findings "config", one a field. */
sw_code sw_verify_config(sw_report *report, const sw_subject *checkpoint,
                         const sw_subject *original, sw_err *err) SW_MUST_USE;

#endif
