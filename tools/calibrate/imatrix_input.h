/* imatrix_input.h - an importance matrix (imatrix.h) as what plain rounding weighs errors by. */
#ifndef SW_TOOLS_CALIBRATE_IMATRIX_INPUT_H
#define SW_TOOLS_CALIBRATE_IMATRIX_INPUT_H

#include "formats/base/json.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/file/imatrix.h"
#include "quant/options.h"

typedef struct sw_imatrix_input sw_imatrix_input;

/* Open FILE for this model and look up every linear of its layers. Errors as sw_imatrix_open;
 * SW_E_UNSUPPORTED: the family has no names as GGUF; SW_E_FORMAT: the file is of another model, or
 * has none of its linears. Holds on to `model`. */
sw_code sw_imatrix_input_open(sw_imatrix_input **out, const char *path, const sw_model *model,
                              sw_err *err) SW_MUST_USE;
void sw_imatrix_input_free(sw_imatrix_input *in); /* accepts NULL */
/* What the options of a run take; valid as long as `in`. */
const sw_importance *sw_imatrix_input_weights(const sw_imatrix_input *in);
/* Linears of the model that the file says nothing of: their errors weigh evenly. */
int64_t sw_imatrix_input_n_missing(const sw_imatrix_input *in);
/* "imatrix": {"name", "sha256", "missing"}. */
sw_code sw_imatrix_input_describe(cJSON *manifest, const sw_imatrix_input *in,
                                  sw_err *err) SW_MUST_USE;

#endif
