/* kv_cache.c - see kv_cache.h. */
#include "tools/cli/kv_cache.h"

#include <string.h>

const char *sw_kv_cache_name(int i)
{
    static const char *const names[] = {"bf16", "fp8", NULL};

    return names[i];
}

bool sw_kv_cache_is_fp8(const char *name) { return name && !strcmp(name, "fp8"); }
