/* imatrix_output.h - statistics as an importance matrix for programs around GGUF (imatrix.h). */
#ifndef SW_TOOLS_CALIBRATE_IMATRIX_OUTPUT_H
#define SW_TOOLS_CALIBRATE_IMATRIX_OUTPUT_H

#include "formats/model/model.h"
#include "quant/stats/stats.h"

/* Before anything is run: SW_E_USAGE where the path's ending says no form; SW_E_UNSUPPORTED where
 * the family has no names as GGUF. */
sw_code sw_imatrix_output_check(const char *path, const sw_model *model, bool may_replace,
                                sw_err *err) SW_MUST_USE;
/* The diagonals of all Hessians in `stats`, of this model, under the names and in the order of
 * inputs that a GGUF of it has. `text` is what the calibration text is called. */
sw_code sw_imatrix_output_write(const char *path, const sw_zpack *stats, const sw_model *model,
                                const sw_calib *calib, const char *text, bool may_replace,
                                sw_err *err) SW_MUST_USE;

#endif
