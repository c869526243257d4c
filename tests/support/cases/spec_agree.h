/* spec_agree.h - one quantized weight through a dialect and back, by both decoders. */
#ifndef SW_TESTS_SUPPORT_CASES_SPEC_AGREE_H
#define SW_TESTS_SUPPORT_CASES_SPEC_AGREE_H

#include "formats/dialect/dialect.h"

/* Encode, decode with the dialect and with the second decoder under the config that the dialect
 * writes; fail the running test unless codes, scales and zero points are those of q. */
void spec_agree(const sw_dialect *dialect, const sw_qtensor *q);
/* Scales that leave half precision are refused by the second decoder: cut them at 128. */
void spec_tame(sw_qtensor *q);

#endif
