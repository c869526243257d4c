/* config_check.h - does config.json describe the model that the original's describes?
 *
 * Both are compared twice. As what the reader of models makes of them, where an absent key has its
 * family's default: every field that a block program runs by. And key by key, since engines read
 * keys that this program does not: a key that differs is a finding unless it is known to change no
 * figure, a key on one side alone unless it is empty or the reader of models knows it (and then
 * the first comparison has spoken). Of a GGUF, whose config.json is made, only the first counts.
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
