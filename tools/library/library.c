/* library.c - versions, errors and tables of the C interface. See libswage.h. */
#include "tools/library/library.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "kernels/kernel.h"
#include "quant/run/scheme.h"

_Static_assert(SW_ERROR_NONE == SW_OK && SW_ERROR_USAGE == SW_E_USAGE &&
                   SW_ERROR_FORMAT == SW_E_FORMAT && SW_ERROR_UNSUPPORTED == SW_E_UNSUPPORTED &&
                   SW_ERROR_IO == SW_E_IO && SW_ERROR_MEMORY == SW_E_NOMEM &&
                   SW_ERROR_BUG == SW_E_BUG,
               "codes of the interface are those inside");
_Static_assert(SW_ERROR_TEXT_BYTES == SW_ERR_TEXT_BYTES, "and so is the room for their text");
_Static_assert(SW_TENSOR_DIMS_MAX == SW_DIMS_MAX, "and what a tensor may have of dimensions");

uint32_t sw_library_version(void) { return SW_LIBRARY_VERSION; }

const char *sw_library_version_text(void) { return SW_VERSION; }

const char *sw_error_name(int code) { return sw_code_name((sw_code)code); }

const char *sw_library_scheme(int i)
{
    return i >= 0 && i < sw_n_schemes ? sw_schemes[i].name : NULL;
}

const char *sw_library_format(int i)
{
    for (int k = 0; k <= i && sw_dialects[k]; k++)
        if (k == i) return sw_dialects[k]->name;
    return NULL;
}

const char *sw_library_kernel(int i)
{
    return i >= 0 && i < sw_n_kernels ? sw_kernels[i].name : NULL;
}

int sw_library_end(sw_error *error, sw_code rc, const sw_err *err)
{
    if (rc == SW_OK || !error) return (int)rc;
    error->code = (int)rc;
    (void)snprintf(error->text, sizeof error->text, "%s", err->text);
    return (int)rc;
}

int sw_library_threads(int32_t n_threads) { return n_threads > 0 ? n_threads : sw_cpu_count(); }

sw_code sw_library_options(void *out, size_t known, const void *given, size_t given_bytes,
                           sw_err *err)
{
    if (given_bytes < sizeof given_bytes || given_bytes > known)
        return SW_FAIL(err, SW_E_USAGE, "options of %zu bytes, this library knows %zu: set "
                       "size_bytes with the INIT macro, and load a library as new as the header",
                       given_bytes, known);
    memset(out, 0, known);
    memcpy(out, given, given_bytes);
    return SW_OK;
}

sw_code sw_library_dialect(const sw_dialect **out, const char *name, sw_err *err)
{
    char names[256] = "";
    size_t n = 0;

    if (name && (*out = sw_dialect_find(name))) return SW_OK;
    for (int i = 0; sw_dialects[i] && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "",
                              sw_dialects[i]->name);
    return SW_FAIL(err, SW_E_USAGE, "no format \"%.64s\"; there are %s", name ? name : "", names);
}

void sw_library_scheme_info(sw_scheme_info *out, const sw_qspec *spec)
{
    memset(out, 0, sizeof *out);
    out->number = spec->num->name;
    out->bits = spec->num->bits;
    out->is_symmetric = spec->is_symmetric;
    out->group_elems = spec->group_elems;
    out->scale_dtype = sw_dtype_name(spec->scale_dtype);
    (void)sw_act_text(out->inputs, &spec->act);
}
