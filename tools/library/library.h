/* library.h - what the files of the C interface share: the objects behind its handles, and how a
 * failure inside becomes one of the interface.
 *
 * Each function of libswage.h is a thin layer over those that the program uses. What the caller
 * gives is checked here, since inside a wrong argument is a bug and not an error.
 */
#ifndef SW_TOOLS_LIBRARY_LIBRARY_H
#define SW_TOOLS_LIBRARY_LIBRARY_H

#include "formats/checkpoint/checkpoint.h"
#include "formats/num/num.h"
#include "tools/library/libswage.h"

typedef struct sw_library_linear {
    sw_linear_ref ref;
    const char *path;
} sw_library_linear;

struct sw_source {
    sw_checkpoint ckpt;
    sw_arena arena;
    sw_library_linear *linears;
    int64_t n_linears;
};

struct sw_matrix {
    sw_qtensor q;
};

/* Hand a failure on; returns its code. */
int sw_library_end(sw_error *error, sw_code rc, const sw_err *err);
/* n_threads, or every processor for 0 and less. */
int sw_library_threads(int32_t n_threads);
void sw_library_scheme_info(sw_scheme_info *out, const sw_qspec *spec);
/* A copy of the caller's struct with what it lacks left at zero: `given` is `known` bytes at most.
 * SW_E_USAGE: it is of a newer version, or was not initialised. */
sw_code sw_library_options(void *out, size_t known, const void *given, size_t given_bytes,
                           sw_err *err) SW_MUST_USE;
/* A format by its name, of those that sw_library_format lists. SW_E_USAGE lists them. */
sw_code sw_library_dialect(const sw_dialect **out, const char *name, sw_err *err) SW_MUST_USE;

#endif
