/* zpack_planes.h - bytes of elements to planes of bytes and back, for both sides of zpack.h. */
#ifndef SW_FORMATS_FILE_ZPACK_PLANES_H
#define SW_FORMATS_FILE_ZPACK_PLANES_H

#include <stddef.h>

static inline void sw_to_planes(unsigned char *out, const unsigned char *in, size_t n_elems,
                                size_t elem_bytes)
{
    for (size_t b = 0; b < elem_bytes; b++)
        for (size_t i = 0; i < n_elems; i++) out[b * n_elems + i] = in[i * elem_bytes + b];
}

static inline void sw_from_planes(unsigned char *out, const unsigned char *in, size_t n_elems,
                                  size_t elem_bytes)
{
    for (size_t b = 0; b < elem_bytes; b++)
        for (size_t i = 0; i < n_elems; i++) out[i * elem_bytes + b] = in[b * n_elems + i];
}

#endif
