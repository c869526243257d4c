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
    static const char *const names[] = {"bf16", "fp8", NULL};

    return names[i];
}

bool sw_kv_cache_is_fp8(const char *name) { return name && !strcmp(name, "fp8"); }
