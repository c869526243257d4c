/* angles.c - the table of rotary angles, grown as positions come into use. */
#include <math.h>
#include <string.h>

#include "formats/base/size.h"
#include "kernels/engine/engine_internal.h"

#define ANGLES_FIRST 512

static sw_code grow(float **table, int64_t n_keep, int64_t n_elems, sw_err *err)
{
    float *larger = NULL;
    sw_code rc = SW_MEM_GET(&larger, n_elems, "rotary angles", err);

    if (rc != SW_OK) return rc;
    if (*table) memcpy(larger, *table, (size_t)n_keep * sizeof *larger);
    sw_mem_put(*table);
    *table = larger;
    return SW_OK;
}

static sw_code reserve(sw_angles *angles, int64_t half, int64_t end, sw_err *err)
{
    int64_t capacity = sw_max_i64(angles->capacity, ANGLES_FIRST);
    sw_code rc;

    if (end <= angles->capacity) return SW_OK;
    while (capacity < end) capacity *= 2;
    if ((rc = grow(&angles->cos, angles->n_filled * half, capacity * half, err)) != SW_OK)
        return rc;
    if ((rc = grow(&angles->sin, angles->n_filled * half, capacity * half, err)) != SW_OK)
        return rc;
    angles->capacity = capacity;
    return SW_OK;
}

/* The angle is a float product, as in the models' own library; its cosine and sine are then
 * rounded from double, so no C library's float versions get a say. */
static void fill_rows(sw_angles *angles, int64_t half, int64_t first, int64_t end, float scale)
{
    for (int64_t p = first; p < end; p++)
        for (int64_t i = 0; i < half; i++) {
            const float angle = angles->inv_freq[i] * (float)p;

            angles->cos[p * half + i] = (float)cos((double)angle) * scale;
            angles->sin[p * half + i] = (float)sin((double)angle) * scale;
        }
}

sw_code sw_angles_fill(sw_angles *angles, const sw_model *m, const sw_rope *rope, int64_t first,
                       int64_t end, sw_err *err)
{
    /* Beyond the trained length some ropes have other frequencies, `dynamic` for every length, so
     * rows hold for one call only. */
    const bool is_stretched = sw_rope_depends_on(m, rope, end);
    const int64_t half = (rope->dim ? rope->dim : m->rope_dim) / 2;
    int64_t begin = is_stretched ? first : angles->n_filled;
    float scale;
    sw_code rc;

    if (!is_stretched && end <= angles->n_filled) return SW_OK;
    if (!angles->inv_freq &&
        (rc = SW_MEM_GET(&angles->inv_freq, half, "rotary frequencies", err)) != SW_OK)
        return rc;
    if ((rc = reserve(angles, half, end, err)) != SW_OK) return rc;
    sw_rope_frequencies(angles->inv_freq, &scale, m, rope, end);
    fill_rows(angles, half, begin, end, scale);
    angles->n_filled = is_stretched ? 0 : end;
    return SW_OK;
}

void sw_angles_free(sw_angles *angles)
{
    sw_mem_put(angles->cos);
    sw_mem_put(angles->sin);
    sw_mem_put(angles->inv_freq);
    memset(angles, 0, sizeof *angles);
}
