/* values.h - floats that are no numbers, found before they spread. */
#ifndef SW_TOOLS_CLI_VALUES_H
#define SW_TOOLS_CLI_VALUES_H

#include "formats/file/safetensors.h"

/* Read a stored F32, F16 or BF16 tensor; other dtypes pass unread. SW_E_FORMAT when something in
 * it is not finite: says how much and where. The pages read are given back. */
sw_code sw_values_check(const sw_st_tensor *tensor, int n_threads, sw_err *err) SW_MUST_USE;

#endif
