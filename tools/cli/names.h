/* names.h - the library's tables as lists of names, for options and messages. */
#ifndef SW_TOOLS_CLI_NAMES_H
#define SW_TOOLS_CLI_NAMES_H

#include "kernels/engine/engine.h"
#include "tools/cli/opt.h"

/* sw_opt_choice_fn each: the i-th name, NULL beyond the end. */
const char *sw_name_of_scheme(int i);
const char *sw_name_of_method(int i);
const char *sw_name_of_format(int i);
const char *sw_name_of_target(int i); /* of a conversion: formats, then plain floats */

/* The --kv-cache option of commands that run a model: how keys and values are kept. */

/* A row for a `const char *` field; NULL is bf16. */
#define SW_KV_CACHE_ROW(type, field)                                                               \
    {.name = "kv-cache", .group = SW_OPT_QUALITY, .kind = SW_OPT_CHOICE,                           \
     .offset = offsetof(type, field), .arg = "K", .choices = sw_kv_cache_name,                     \
     .help = "how keys and values are kept: as they are computed (bf16, the default), or in half " \
             "the memory with the checkpoint's k_scale and v_scale, as fp8 (by 1 if it has none) " \
             "or as int8"}

const char *sw_kv_cache_name(int i); /* of an sw_kv_kind */
/* SW_KV_FLOATS for NULL and for other names, as "none" of quantize. */
sw_kv_kind sw_kv_kind_of(const char *name);
const char *sw_kv_cache_of_num(const sw_num *num); /* NULL: of floats */

#endif
