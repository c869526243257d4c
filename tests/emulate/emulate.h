/* emulate.h - a CUDA device on the processor: what its parts and the rewritten kernels share.
 *
 * One block runs at a time, or those of a few clusters. Their threads are fibers, of which each
 * runs until it waits for others;
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
#define EMU_STATIC_MAX (48 << 10) /* bytes of shared memory that may be declared with their size */
#define EMU_BLOCKS_MAX 16         /* that are resident at once */
#define EMU_CLUSTER_MAX 8
#define EMU_MULTIPROCESSORS 4

typedef struct emu_dim {
    unsigned x, y, z;
} emu_dim;

/* Of the thread that runs; `emu_id` numbers the threads of a block, `emu_block` those blocks that
 * are resident. */
extern emu_dim threadIdx, blockIdx, blockDim, gridDim;
extern int emu_id, emu_block;
extern const char *emu_kernel; /* its name */

typedef struct emu_launch_args {
    emu_dim grid, block;
    int cluster;    /* blocks of a cluster, in x; 0 or 1: none */
    bool is_hopper; /* a kernel of Hopper's: blocks resident together, order by clocks */
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
void emu_barrier_arrive(int id, int n_threads);
/* Others go on; for who looks again and again until another block has done something. */
void emu_yield(void);
/* Until emu_wake of the same: mbarrier.c. */
void emu_wait_mbarrier(const void *mbarrier, const char *what);
bool emu_is_awaited(const void *mbarrier);
void emu_wake(const void *mbarrier);
uint32_t emu_cluster_rank(void);
uint32_t emu_cluster_size(void);
int emu_block_of_rank(uint32_t rank);
void emu_cluster_barrier(bool orders);
uint64_t emu_seed(void);

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
/* An address of shared memory in 32 bits, and back: where it lies in the block, and above bit 24
 * one more than the rank of a block of the cluster, if it came of emu_shared_map. */
uint32_t emu_shared_address(const void *p);
void *emu_shared_pointer(uint32_t address);
uint32_t emu_shared_map(uint32_t address, uint32_t rank);
size_t emu_shared_max(void); /* bytes of a block */
/* What the copy engine and products of warpgroups do, for the thread that runs: products read
 * now; what the engine writes is there for who has waited for `mbarrier`, an index of clocks. */
void emu_async_read(const void *p, size_t n_bytes);
void emu_engine_write(void *p, size_t n_bytes, uint32_t mbarrier);
void emu_proxy_fence(void);
void emu_shared_peek(void *p, size_t n_bytes); /* a read that nobody has to wait for */
/* Whether what thread `who` did at `time` is known to the thread that runs is in clocks.c. */
bool emu_clock_has(uint32_t who, uint32_t time);
extern uint32_t emu_now;

/* ---- clocks.c: what each thread has seen of each other, of kernels of Hopper's ---- */

#define EMU_MBARRIERS_MAX 256 /* of a block */

void emu_clock_begin(int n_blocks, int cluster, int n_threads); /* 0: they are not kept */
bool emu_has_clocks(void);
uint32_t emu_clock_me(void);                           /* index of the thread that runs */
uint32_t emu_clock_mbarrier(int block_no, int slot);   /* or of what a barrier awaits */
void emu_clock_release(uint32_t **into);
uint32_t emu_clock_released(void); /* when the thread that runs did so last */
void emu_clock_acquire(int id, const uint32_t *from);  /* thread `id` of the block that runs */
void emu_clock_meet(int first_block, int n_blocks);    /* all threads of these */
void emu_clock_meet_lanes(int warp, uint32_t mask);
void emu_clock_note(uint32_t **into, uint32_t who);    /* what `who` did until now */
void emu_clock_name(uint32_t who, char text[64]);
bool emu_clock_is_engine(uint32_t who);
void emu_clock_merge(uint32_t **into, const uint32_t *from);

/* ---- mbarrier.c, engine.c, wgmma.c: what is asynchronous on Hopper ---- */

void emu_mbarriers_begin(void);                        /* of a block */
void emu_mbarriers_known(int first_block, int n_blocks);
struct emu_mbarrier *emu_mbarrier_at(uint32_t address);
void emu_mbarrier_brought(struct emu_mbarrier *b, uint32_t n_bytes);
uint32_t emu_mbarrier_clock(const struct emu_mbarrier *b);
/* One of the copies that are under way, of which somebody waits if there is such; false: none. */
bool emu_engine_step(void);
void emu_engine_block_ends(void);
void emu_thread_ends(void);
bool emu_is_lane_elected(void); /* all lanes come, and one does it, if the text says so */
unsigned char *emu_swizzled(unsigned char *p);
float emu_e4m3(unsigned bits);

/* ---- copy.c: copies of a thread that end when it waits for them ---- */

void emu_copy(void *to, const void *from, int n_bytes, int n_there);
void emu_copy_commit(void);
void emu_copy_wait(int n_left); /* groups that may go on */
void emu_copy_forget(int n_blocks); /* they have ended */

/* ---- ptx.c: instructions ---- */

typedef struct emu_operand {
    void *out;   /* what is written, or read and written */
    uint64_t in; /* bits of what is read */
} emu_operand;

typedef void emu_instruction(const emu_operand *op);
/* By the text of the statement; one that has no row is a fault when it is reached. */
emu_instruction *emu_find(const char *text);
emu_instruction *emu_find_hopper(const char *text); /* NULL: it has no row */
extern const char *emu_text; /* of the statement that runs */

/* ---- runtime.c ---- */

/* What the host does for the device: now, or each time that the graph is run which is captured. */
void emu_enqueue(void (*run)(const void *ctx), const void *ctx, size_t ctx_bytes);
/* How a kernel is called of which a launch knows the address and those of arguments. */
typedef void emu_caller(const void *kernel, void *const *args);
void emu_remember(const void *kernel, emu_caller *call, bool is_hopper);

#ifdef __cplusplus
}
#endif
#endif
