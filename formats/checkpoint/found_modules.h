/* found_modules.h - the linears of a checkpoint whose family has no row. */
#ifndef SW_FORMATS_CHECKPOINT_FOUND_MODULES_H
#define SW_FORMATS_CHECKPOINT_FOUND_MODULES_H

#include "formats/checkpoint/checkpoint.h"
#include "formats/model/unknown/found.h"

/* Set ckpt->model.found: linears in floats as unknown/found.h tells them, and every module in
 * codes. The shape of the latter is what their tensors say, or the one that the dialect stores in
 * just these shapes. SW_E_FORMAT: no shape is; SW_E_UNSUPPORTED: several are, or the format keeps
 * all experts in one tensor. Both name the module. */
sw_code sw_checkpoint_find_linears(sw_checkpoint *ckpt, sw_err *err) SW_MUST_USE;

/* The shape of module->path, which is stored in codes; n earlier ones help where several would fit.
 * The same errors. */
sw_code sw_checkpoint_coded_shape(sw_coded_module *module, const sw_checkpoint *ckpt,
                                  const sw_coded_module *earlier, int64_t n,
                                  sw_err *err) SW_MUST_USE;

#endif
