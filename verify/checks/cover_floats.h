/* cover_floats.h - tensors that a container keeps in other floats than the original has. */
#ifndef SW_VERIFY_CHECKS_COVER_FLOATS_H
#define SW_VERIFY_CHECKS_COVER_FLOATS_H

#include "formats/file/safetensors.h"

typedef enum sw_cover {
    SW_COVER_OTHER,   /* other values, or another shape */
    SW_COVER_SAME,    /* every value the same */
    SW_COVER_ROUNDED  /* every value rounded to the dtype of `kept` */
} sw_cover;

/* `original` with its data at hand; infinite and not-a-number values count as other. */
sw_code sw_cover_floats(sw_cover *out, const sw_st_tensor *kept, const sw_cview *original,
                        sw_err *err) SW_MUST_USE;

#endif
