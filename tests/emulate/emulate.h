/* emulate.h - a CUDA device on the processor: what its parts and the rewritten kernels share.
 *
 * One block runs at a time. Its threads are fibers, of which each runs until it waits for others;
 * so what a kernel computes does not depend on the clock, and every run goes the same way.
 * Whoever breaks a rule of CUDA ends the program with a sentence (emu_fault).
 */
#ifndef SW_TESTS_EMULATE_EMULATE_H
#define SW_TESTS_EMULATE_EMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EMU_WARP 32
#define EMU_THREADS_MAX 1024
#define EMU_WARPS_MAX (EMU_THREADS_MAX / EMU_WARP)
#define EMU_SHARED_MAX (163 << 10) /* bytes of a block on a device of compute capability 8.0 */
#define EMU_STATIC_MAX (48 << 10)  /* of which so many may be declared with their size */

typedef struct emu_dim {
    unsigned x, y, z;
} emu_dim;

/* Of the thread that runs; `emu_id` numbers the threads of a block. */
extern emu_dim threadIdx, blockIdx, blockDim, gridDim;
extern int emu_id;
extern const char *emu_kernel; /* its name */

typedef struct emu_launch_args {
    emu_dim grid, block;
    size_t shared_bytes;
    void (*call)(const void *ctx); /* the kernel with its arguments, by each thread */
    const void *ctx;
    size_t ctx_bytes;
} emu_launch_args;

/* ---- block.c: blocks, threads, who waits for whom ---- */

/* All blocks, one after the other; false if no device could run it. */
bool emu_run(const emu_launch_args *launch);
/* A kernel says its name. */
void emu_enter(const char *kernel);
/* Barrier `id`, of n_threads of the block, 0 for all that have not ended. */
void emu_barrier(int id, int n_threads);

/* The lanes of `mask` meet; the last that comes ends it for all, with what each brought, NULL for
 * those that are not in the mask. `what` must be the same for all. With `orders` what lanes wrote
 * before is there for the others: only __syncwarp promises that. */
typedef void emu_finish(void *const lanes[EMU_WARP]);
void emu_meet(uint32_t mask, const char *what, void *mine, emu_finish *finish, bool orders);

/* __shfl_*_sync of 32 or 64 bits: from lane `from` of each lane's own choice. */
uint64_t emu_shuffle(uint32_t mask, uint64_t value, int from);
uint32_t emu_ballot(uint32_t mask, bool is_set);
uint32_t emu_reduce(uint32_t mask, uint32_t value, char how); /* + u(nsigned max) i(nteger max) */
uint32_t emu_match(uint32_t mask, uint64_t value);

void emu_fault(const char *form, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* ---- shared.c: shared memory, what it holds and who may touch it ---- */

void emu_shared_begin(size_t dynamic_bytes); /* of a block */
void emu_shared_thread(int id);              /* begins to run */
/* Threads have met. Of a warp: lanes of `mask`; of a block: warps of `mask`. */
void emu_shared_met_lanes(int warp, uint32_t mask);
void emu_shared_met_warps(uint32_t mask, bool is_all);
void *emu_shared_take(const void *key, size_t size_bytes, size_t align, const char *name);
void *emu_dynamic(void);
/* Accesses by instructions that no compiler instruments. */
void emu_read(const void *p, size_t n_bytes);
void emu_write(void *p, size_t n_bytes);
void emu_atomic(void *p, size_t n_bytes);
/* An address of shared memory in 32 bits, and back. */
uint32_t emu_shared_address(const void *p);
void *emu_shared_pointer(uint32_t address);

/* ---- copy.c: copies of a thread that end when it waits for them ---- */

void emu_copy(void *to, const void *from, int n_bytes, int n_there);
void emu_copy_commit(void);
void emu_copy_wait(int n_left); /* groups that may go on */
void emu_copy_forget(void);     /* a block ends */

/* ---- ptx.c: instructions ---- */

typedef struct emu_operand {
    void *out;   /* what is written, or read and written */
    uint64_t in; /* bits of what is read */
} emu_operand;

typedef void emu_instruction(const emu_operand *op);
/* By the text of the statement; one that has no row is a fault when it is reached. */
emu_instruction *emu_find(const char *text);

/* ---- runtime.c ---- */

/* What the host does for the device: now, or each time that the graph is run which is captured. */
void emu_enqueue(void (*run)(const void *ctx), const void *ctx, size_t ctx_bytes);
/* How a kernel is called of which a launch knows the address and those of arguments. */
typedef void emu_caller(const void *kernel, void *const *args);
void emu_remember(const void *kernel, emu_caller *call);

#ifdef __cplusplus
}
#endif
#endif
