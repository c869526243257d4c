/* kv_cache.h - the --kv-cache option of commands that run a model: how keys and values are kept. */
#ifndef SW_TOOLS_CLI_KV_CACHE_H
#define SW_TOOLS_CLI_KV_CACHE_H

#include "tools/cli/opt.h"

/* A row for a `const char *` field; NULL is bf16. */
#define SW_KV_CACHE_ROW(type, field)                                                         \
    {.name = "kv-cache", .kind = SW_OPT_CHOICE, .offset = offsetof(type, field), .arg = "K", \
     .choices = sw_kv_cache_name,                                                            \
     .help = "keys and values as they are computed (bf16, the default), or fp8: in half the " \
             "memory, by the checkpoint's k_scale and v_scale where it has them"}

const char *sw_kv_cache_name(int i);
bool sw_kv_cache_is_fp8(const char *name);

#endif
