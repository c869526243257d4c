/* cpu.h - the steps of the CPU's backend, all in memory: backend.h says what each does. For this
 * room alone.
 */
#ifndef SW_QUANT_BACKEND_CPU_CPU_H
#define SW_QUANT_BACKEND_CPU_CPU_H

#include "formats/io/spill.h"
#include "quant/backend.h"
#include "quant/method/algo.h"
#include "quant/method/target.h"
#include "quant/search/transform.h"
#include "quant/stats/kv_scales.h"
#include "quant/stats/ranges.h"

#define SW_STEP(name, args) sw_code sw_cpu_##name args SW_MUST_USE;
#define SW_STEP_OF(type, name, args) type sw_cpu_##name args;
#include "quant/backend_steps.def"
#undef SW_STEP
#undef SW_STEP_OF

/* Streams (streams.h) in memory, or in a file. For the CPU's backend alone. */

/* What a sw_streams in memory keeps. */
typedef struct sw_cpu_streams {
    sw_spill spill, spill0; /* behind x and x0 when they do not live in memory */
    float *x;               /* [n_tokens, hidden] quantized stream */
    float *x0;              /* original stream, or NULL when no cross term is wanted */
} sw_cpu_streams;

/* A chunk of `from`, copied, through what is left of the block up to a site, with a tap. */
sw_code sw_cpu_run_chunk(sw_streams *s, const sw_block *block, const float *from, int64_t seq,
                         const sw_tap *tap, sw_site stop_at, sw_err *err) SW_MUST_USE;
/* Done with a chunk of both streams, for now. */
void sw_cpu_release_chunk(const sw_streams *s, int64_t seq);
/* Run the quantized stream with a tap, up to the last wanted site. It does not move. */
sw_code sw_cpu_visit(sw_streams *s, const sw_block *block, const sw_tap *tap,
                     const bool is_wanted[SW_SITE_COUNT], const sw_progress *progress,
                     sw_err *err) SW_MUST_USE;

#endif
