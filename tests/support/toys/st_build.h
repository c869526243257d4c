/* st_build.h - a safetensors container made in memory, tensor by tensor, for tests. */
#ifndef SW_TESTS_SUPPORT_TOYS_ST_BUILD_H
#define SW_TESTS_SUPPORT_TOYS_ST_BUILD_H

#include "formats/dialect/dialect.h"
#include "formats/file/safetensors.h"
#include "verify/decoders/decode_spec.h"

#define ST_BUILD_MAX 64

typedef struct st_build {
    struct {
        char name[160];
        sw_cview view;
        uint8_t *data; /* owned; may be changed until st_build_open */
    } tensors[ST_BUILD_MAX];
    int n;
    uint8_t *bytes;
    sw_st *st;
} st_build;

/* All fail the running cmocka test on an error. Copies the data; NULL data is zeros. */
uint8_t *st_build_add(st_build *b, const char *name, sw_dtype dtype, int32_t n_dims,
                      const int64_t *shape, const void *data);
/* The tensors that a dialect makes of a weight, as "<module_path>.<suffix>". */
void st_build_encode(st_build *b, const sw_dialect *dialect, const char *module_path,
                     const sw_qtensor *q);
uint8_t *st_build_data(st_build *b, const char *name); /* NULL when there is none */
const sw_st *st_build_open(st_build *b); /* may be called again after a change */
void st_build_free(st_build *b);

/* What the second decoder makes of the config that the dialect writes for one scheme. */
sw_spec_scheme st_build_scheme(const sw_dialect *dialect, const sw_qspec *spec);

#endif
