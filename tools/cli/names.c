/* names.c - see names.h. */
#include "tools/cli/names.h"

#include <string.h>

#include "formats/checkpoint/writer/gguf_export.h"
#include "formats/dialect/dialect.h"
#include "quant/method/algo.h"
#include "quant/run/scheme.h"

const char *sw_name_of_scheme(int i) { return i < sw_n_schemes ? sw_schemes[i].name : NULL; }
const char *sw_name_of_method(int i) { return i < sw_n_algos ? sw_algos[i].name : NULL; }

const char *sw_name_of_format(int i)
{
    return sw_dialects[i] ? sw_dialects[i]->name : NULL; /* the table ends with NULL */
}

const char *sw_name_of_target(int i)
{
    for (const sw_dialect *const *d = sw_dialects; *d; d++)
        if (i-- == 0) return (*d)->name;
    for (const sw_dialect *const *d = sw_dense_dialects; *d; d++)
        if (i-- == 0) return (*d)->name;
    return i == 0 ? SW_GGUF_TARGET : NULL;
}

const char *sw_kv_cache_name(int i)
{
    static const char *const names[] = {
        [SW_KV_FLOATS] = "bf16", [SW_KV_E4M3] = "fp8", [SW_KV_INT8] = "int8", NULL};

    return names[i];
}

sw_kv_kind sw_kv_kind_of(const char *name)
{
    for (int i = SW_KV_FLOATS + 1; name && sw_kv_cache_name(i); i++)
        if (!strcmp(name, sw_kv_cache_name(i))) return (sw_kv_kind)i;
    return SW_KV_FLOATS;
}

const char *sw_kv_cache_of_num(const sw_num *num)
{
    for (int i = SW_KV_FLOATS + 1; sw_kv_cache_name(i); i++)
        if (num == sw_kv_num((sw_kv_kind)i)) return sw_kv_cache_name(i);
    return sw_kv_cache_name(SW_KV_FLOATS);
}
