/* found_modules.h - the linears of a checkpoint whose family has no row. */
#ifndef SW_FORMATS_CHECKPOINT_FOUND_MODULES_H
#define SW_FORMATS_CHECKPOINT_FOUND_MODULES_H

#include "formats/checkpoint/checkpoint.h"

/* Set ckpt->model.found: linears in floats as unknown/found.h tells them, and every module in
 * codes. The shape of the latter is what their tensors say, or the one that the dialect stores in
 * just these shapes. SW_E_FORMAT: no shape is; SW_E_UNSUPPORTED: several are, or the format keeps
 * all experts in one tensor. Both name the module. */
sw_code sw_checkpoint_find_linears(sw_checkpoint *ckpt, sw_err *err) SW_MUST_USE;

#endif
