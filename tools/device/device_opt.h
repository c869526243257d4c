/* device_opt.h - the --device option: where a command computes. */
#ifndef SW_TOOLS_DEVICE_DEVICE_OPT_H
#define SW_TOOLS_DEVICE_DEVICE_OPT_H

#include "formats/base/progress.h"
#include "kernels/solver.h"
#include "tools/cli/opt.h"

/* A row for a `const char *` field; NULL or "cpu" is the CPU. */
#define SW_DEVICE_ROW(type, field)                                                                 \
    {.name = "device", .kind = SW_OPT_TEXT, .offset = offsetof(type, field), .arg = "D",           \
     .help = "cpu (default), cuda, cuda:N, or auto: the first card if there is one, else cpu"}

/* And one for a `uint64_t` field, where a model may stream from host memory. */
#define SW_DEVICE_MEMORY_ROW(type, field)                                                        \
    {.name = "device-memory", .kind = SW_OPT_SIZE, .offset = offsetof(type, field),              \
     .arg = "BYTES", .help = "of the card at most (default: what is free); blocks of a model "   \
                             "that do not fit wait in host memory and are copied in by turns"}

/* *out = an opened card whose memory is used up to cap_bytes (0: what is free), or NULL for the
 * CPU. SW_E_USAGE: no such word; SW_E_CUDA (exit code 7): the card cannot be used, and why. */
sw_code sw_device_option_open(sw_device **out, const char *word, uint64_t cap_bytes,
                              sw_err *err) SW_MUST_USE;

/* The card with what calibration needs of it, both NULL for the CPU; progress says which it is. The
 * caller closes both, the solver first, also after a failure. */
sw_code sw_device_option_open_solver(sw_device **gpu, sw_solver **solver, const char *word,
                                     const sw_progress *progress, sw_err *err) SW_MUST_USE;

#endif
