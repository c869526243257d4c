/* block.c - blocks of threads as fibers: see emulate.h.
 *
 * A thread runs until it waits, then the next one that can run goes on, in the order of their
 * numbers; SW_EMULATE_SEED turns that order and shuffles the blocks, for what holds in one order
 * only. If nobody can run, the copy engine does what it put off (engine.c), and if it has nothing
 * to do there is a barrier that not all come to.
 *
 * Blocks run one after the other, but those of Hopper's kernels together: all of a cluster, and as
 * many clusters as have room, for their blocks wait for each other across the grid.
 */
#include <pthread.h>
#include <sanitizer/common_interface_defs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/emulate/emulate.h"

#define STACK_BYTES ((size_t)512 << 10)
#define GUARD_BYTES ((size_t)4096)
#define BARRIERS 16
#define KERNELS_MAX 4096 /* of a program; instances of templates count */

typedef enum state { ENDED, READY, AT_BARRIER, AT_MEETING, AT_MBARRIER } state;

typedef struct fiber {
    void *sp;    /* of one that does not run */
    char *stack;
    void *fake;  /* what ASan keeps of it */
    state state;
    const char *waits_for;
    const void *mbarrier; /* that it waits for */
    emu_dim at;
} fiber;

/* Lanes that wait for others of their mask. */
typedef struct meeting {
    uint32_t mask, there;
    const char *what;
    bool orders;
    emu_finish *finish;
    void *brought[EMU_WARP];
} meeting;

typedef struct warp {
    uint32_t alive;
    meeting meetings[EMU_WARP];
    int n_meetings;
} warp;

typedef struct barrier {
    int n_awaited, n_there; /* n_awaited 0: all that are alive */
    int n_waiting;          /* of those that are there: the others only arrived */
    uint32_t warps;
    int waiting[EMU_THREADS_MAX];
    uint32_t *clock; /* what those that came had seen */
} barrier;

/* A block that is resident. */
typedef struct block {
    emu_dim at;
    int rank, first; /* in its cluster; where that one's blocks begin */
    int n_alive;
    fiber fibers[EMU_THREADS_MAX];
    warp warps[EMU_WARPS_MAX];
    barrier barriers[BARRIERS];
    int n_at_cluster; /* threads that wait for the cluster */
} block;

emu_dim threadIdx, blockIdx, blockDim, gridDim;
int emu_id;
const char *emu_kernel = "?";

static block blocks[EMU_BLOCKS_MAX], *here = blocks;
static int n_threads, turn, n_resident, cluster_size;
int emu_block;
static const emu_launch_args *launch;
static fiber *came_from; /* of the latest switch */
static void *main_sp, *main_fake;
static const void *main_bottom;
static size_t main_bytes;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Keeps what a call must keep (System V, x86-64) on this stack and goes on with another. */
void emu_switch(void **keep_sp, void *sp);
__asm__(".globl emu_switch\n"
        ".type emu_switch, @function\n"
        "emu_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size emu_switch, . - emu_switch\n"
        ".section .note.GNU-stack,\"\",@progbits\n"
        ".text\n");

void emu_fault(const char *form, ...)
{
    va_list args;

    fflush(stdout);
    fprintf(stderr, "ERROR: %s, block %u,%u,%u of %u,%u,%u, thread %u,%u,%u of %u,%u,%u: ",
            emu_kernel, blockIdx.x, blockIdx.y, blockIdx.z,
            gridDim.x, gridDim.y, gridDim.z, threadIdx.x,
            threadIdx.y, threadIdx.z, blockDim.x, blockDim.y,
            blockDim.z);
    va_start(args, form);
    vfprintf(stderr, form, args);
    va_end(args);
    fprintf(stderr, "\n");
    __sanitizer_print_stack_trace();
    _exit(1);
}

/* ---- who runs ---- */

static fiber *this_fiber(void) { return &here->fibers[emu_id]; }

static void use(int block_no, int id)
{
    emu_block = block_no;
    here = &blocks[block_no];
    emu_id = id;
    blockIdx = here->at;
    threadIdx = here->fibers[id].at;
    emu_shared_thread(id);
}

/* From one fiber to another; NULL is the launch. A fiber that has ended stays behind. */
static void go(fiber *from, fiber *to)
{
    void **keep = from ? &from->fake : &main_fake;

    came_from = from;
    __sanitizer_start_switch_fiber(from && from->state == ENDED ? NULL : keep,
                                   to ? to->stack + GUARD_BYTES : main_bottom,
                                   to ? STACK_BYTES - GUARD_BYTES : main_bytes);
    emu_switch(from ? &from->sp : &main_sp, to ? to->sp : main_sp);
    __sanitizer_finish_switch_fiber(*keep, NULL, NULL);
}

/* Lanes of one warp first, for they wait for each other most. NULL if nobody can run. */
static fiber *next_ready(int block_no, int after)
{
    const int n = n_resident * n_threads, first = block_no * n_threads + after;

    do {
        for (int i = 1; i <= n; i++) {
            const int at = (first + i) % n;
            fiber *f = &blocks[at / n_threads].fibers[at % n_threads];

            if (f->state == READY) {
                use(at / n_threads, at % n_threads);
                return f;
            }
        }
    } while (emu_engine_step());
    return NULL;
}

static int n_of_state(bool is_ended)
{
    int n = 0;

    for (int i = 0; i < n_resident * n_threads; i++)
        n += (blocks[i / n_threads].fibers[i % n_threads].state == ENDED) == is_ended;
    return n;
}

static void explain_standstill(void)
{
    static const int shown = 12;
    int n = 0;

    fprintf(stderr, "ERROR: %s: %d of %d threads have ended and nobody can go on:\n", emu_kernel,
            n_of_state(true), n_resident * n_threads);
    for (int i = 0; i < n_resident * n_threads; i++) {
        const int id = i % n_threads;
        const fiber *f = &blocks[i / n_threads].fibers[id];
        const bool is_new = id == 0 || f[-1].state != f->state ||
                            f[-1].waits_for != f->waits_for || f[-1].mbarrier != f->mbarrier;

        if (f->state != ENDED && is_new && n++ < shown)
            fprintf(stderr, "  block %d: thread %d and those behind it wait at %s\n",
                    i / n_threads, id, f->waits_for);
    }
    emu_fault("a barrier that not all come to");
}

static void go_on(state why, const char *what)
{
    fiber *me = this_fiber(), *next;

    me->state = why;
    me->waits_for = what;
    next = next_ready(emu_block, emu_id);
    if (!next) explain_standstill();
    if (next != me) go(me, next);
}

void emu_yield(void)
{
    (void)emu_engine_step();
    go_on(READY, "others");
}

void emu_wait_mbarrier(const void *mbarrier, const char *what)
{
    this_fiber()->mbarrier = mbarrier;
    go_on(AT_MBARRIER, what);
}

bool emu_is_awaited(const void *mbarrier)
{
    for (int i = 0; i < n_resident * n_threads; i++) {
        const fiber *f = &blocks[i / n_threads].fibers[i % n_threads];

        if (f->state == AT_MBARRIER && f->mbarrier == mbarrier) return true;
    }
    return false;
}

void emu_wake(const void *mbarrier)
{
    for (int i = 0; i < n_resident * n_threads; i++) {
        fiber *f = &blocks[i / n_threads].fibers[i % n_threads];

        if (f->state == AT_MBARRIER && f->mbarrier == mbarrier) f->state = READY;
    }
}

/* ---- warps ---- */

static void close_meeting(warp *w, meeting *m)
{
    const int first = (int)(w - here->warps) * EMU_WARP;

    if (m->finish) m->finish(m->brought);
    if (m->orders) emu_shared_met_lanes((int)(w - here->warps), m->there);
    for (int lane = 0; lane < EMU_WARP; lane++)
        if (m->there >> lane & 1) here->fibers[first + lane].state = READY;
    *m = w->meetings[--w->n_meetings];
}

static meeting *find_meeting(warp *w, uint32_t mask, const char *what, emu_finish *finish)
{
    meeting *m = w->meetings;

    for (int i = 0; i < w->n_meetings; i++) {
        if (m[i].mask == mask && m[i].finish == finish && m[i].what == what) return &m[i];
        if (m[i].mask & mask & w->alive)
            emu_fault("lanes %08x of a warp are at %s, and others of them at %s for %08x",
                      m[i].mask, m[i].what, what, mask);
    }
    m = &w->meetings[w->n_meetings++];
    memset(m, 0, sizeof *m);
    m->mask = mask;
    m->what = what;
    m->finish = finish;
    return m;
}

void emu_meet(uint32_t mask, const char *what, void *mine, emu_finish *finish, bool orders)
{
    const int id = emu_id, lane = id % EMU_WARP;
    warp *w = &here->warps[id / EMU_WARP];
    meeting *m;

    if (!(mask >> lane & 1)) emu_fault("%s for lanes %08x by lane %d", what, mask, lane);
    m = find_meeting(w, mask, what, finish);
    m->there |= 1u << lane;
    m->brought[lane] = mine;
    m->orders = orders;
    if ((m->there & w->alive) == (mask & w->alive)) close_meeting(w, m);
    else go_on(AT_MEETING, what);
}

/* ---- blocks and clusters ---- */

static void open_barrier(barrier *b)
{
    const bool is_all = b->n_awaited == 0 || b->n_waiting == n_threads;

    for (int i = 0; i < b->n_waiting; i++) {
        here->fibers[b->waiting[i]].state = READY;
        if (b->clock) emu_clock_acquire(b->waiting[i], b->clock);
    }
    emu_shared_met_warps(is_all ? ~0u : b->warps, is_all);
    b->n_there = b->n_waiting = 0;
    b->warps = 0;
}

static bool is_full(const barrier *b)
{
    return b->n_there > 0 && b->n_there == (b->n_awaited ? b->n_awaited : here->n_alive);
}

/* Whether this one is the last. */
static bool come_to_barrier(int id, int n_awaited, bool waits)
{
    barrier *b = &here->barriers[id];

    if (id < 0 || id >= BARRIERS || n_awaited % EMU_WARP != 0 || n_awaited > n_threads)
        emu_fault("barrier %d of %d threads", id, n_awaited);
    if (b->n_there > 0 && b->n_awaited != n_awaited)
        emu_fault("barrier %d of %d threads, which others say is of %d", id, n_awaited,
                  b->n_awaited);
    b->n_awaited = n_awaited;
    if (waits) b->waiting[b->n_waiting++] = emu_id;
    b->n_there++;
    b->warps |= 1u << emu_id / EMU_WARP;
    emu_clock_release(&b->clock);
    if (!is_full(b)) return false;
    open_barrier(b);
    return true;
}

void emu_barrier(int id, int n_awaited)
{
    if (come_to_barrier(id, n_awaited, true)) return;
    go_on(AT_BARRIER, n_awaited ? "a barrier of some warps" : "__syncthreads()");
}

void emu_barrier_arrive(int id, int n_awaited) { (void)come_to_barrier(id, n_awaited, false); }

uint32_t emu_cluster_rank(void) { return (uint32_t)here->rank; }

uint32_t emu_cluster_size(void) { return (uint32_t)cluster_size; }

int emu_block_of_rank(uint32_t rank)
{
    if (rank >= (uint32_t)cluster_size) emu_fault("rank %u of a cluster of %d", rank, cluster_size);
    if (blocks[here->first + (int)rank].n_alive == 0)
        emu_fault("shared memory of block %u of the cluster, which has ended", rank);
    return here->first + (int)rank;
}

/* All threads of the cluster meet that have not ended; `orders` as in emu_meet. */
static void open_cluster(int first, bool orders)
{
    int alive = 0, there = 0;

    for (int i = first; i < first + cluster_size; i++) {
        alive += blocks[i].n_alive;
        there += blocks[i].n_at_cluster;
    }
    if (there == 0 || there != alive) return;
    for (int i = first; i < first + cluster_size; i++) blocks[i].n_at_cluster = 0;
    if (orders) emu_clock_meet(first, cluster_size);
    else emu_mbarriers_known(first, cluster_size);
    emu_wake(&blocks[first]);
}

static bool cluster_orders; /* as its threads say, all the same */

void emu_cluster_barrier(bool orders)
{
    here->n_at_cluster++;
    cluster_orders = orders;
    this_fiber()->state = AT_MBARRIER;
    this_fiber()->mbarrier = &blocks[here->first];
    open_cluster(here->first, orders);
    go_on(this_fiber()->state, "a barrier of the cluster");
}

/* Those that still wait may have waited for this thread alone. */
static void end_thread(int id)
{
    warp *w = &here->warps[id / EMU_WARP];

    here->fibers[id].state = ENDED;
    here->n_alive--;
    w->alive &= ~(1u << id % EMU_WARP);
    for (int i = w->n_meetings; i-- > 0;) {
        meeting *m = &w->meetings[i];

        if ((m->there & w->alive) == (m->mask & w->alive)) close_meeting(w, m);
    }
    if (is_full(&here->barriers[0])) open_barrier(&here->barriers[0]);
    emu_thread_ends();
    if (here->n_alive == 0) emu_engine_block_ends();
    open_cluster(here->first, cluster_orders);
}

static void run_thread(void)
{
    fiber *me, *next;

    __sanitizer_finish_switch_fiber(NULL, came_from ? NULL : &main_bottom,
                                    came_from ? NULL : &main_bytes);
    launch->call(launch->ctx);
    me = this_fiber();
    end_thread(emu_id);
    next = next_ready(emu_block, emu_id);
    if (!next && n_of_state(false) > 0) explain_standstill();
    go(me, next);
    abort(); /* it is never gone back to */
}

static void make_stack(fiber *f)
{
    if (f->stack) return;
    f->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED || mprotect(f->stack, GUARD_BYTES, PROT_NONE) != 0) {
        fprintf(stderr, "no memory for the stack of a thread\n");
        _exit(1);
    }
}

/* As if emu_switch had been called where run_thread begins: the stack is 8 off a multiple of 16. */
static void begin_thread(fiber *f, int id)
{
    void **sp;

    make_stack(f);
    sp = (void **)(void *)(f->stack + STACK_BYTES) - 2;
    *sp = (void *)(uintptr_t)run_thread;
    sp -= 6;
    memset(sp, 0, 6 * sizeof *sp);
    f->sp = sp;
    f->fake = NULL;
    f->state = READY;
    f->at = (emu_dim){(unsigned)id % launch->block.x,
                      (unsigned)id / launch->block.x % launch->block.y,
                      (unsigned)id / launch->block.x / launch->block.y};
}

/* Block `at` in place `block_no` of those that are resident. */
static void begin_block(int block_no, uint64_t at)
{
    const emu_dim g = launch->grid;
    block *b = &blocks[block_no];

    b->at = (emu_dim){(unsigned)(at % g.x), (unsigned)(at / g.x % g.y),
                      (unsigned)(at / g.x / g.y)};
    b->rank = block_no % cluster_size;
    b->first = block_no - b->rank;
    b->n_alive = n_threads;
    b->n_at_cluster = 0;
    for (int i = 0; i < BARRIERS; i++) {
        free(b->barriers[i].clock);
        b->barriers[i] = (barrier){0};
    }
    for (int i = 0; i < (n_threads + EMU_WARP - 1) / EMU_WARP; i++) {
        const int n = n_threads - i * EMU_WARP;

        b->warps[i].n_meetings = 0;
        b->warps[i].alive = n >= EMU_WARP ? ~0u : (1u << n) - 1;
    }
    for (int id = 0; id < n_threads; id++) begin_thread(&b->fibers[id], id);
    emu_block = block_no;
    emu_shared_begin(launch->shared_bytes);
}

/* Those from `first` on, in the order that the seed gives: i to i * step + s, step prime to n. */
static void run_some(uint64_t first, uint64_t n_blocks, uint64_t step, uint64_t s)
{
    const uint64_t n = (uint64_t)launch->grid.x * launch->grid.y * launch->grid.z;

    n_resident = (int)n_blocks;
    emu_clock_begin(launch->is_hopper ? n_resident : 0, cluster_size, n_threads);
    for (int i = 0; i < n_resident; i++) {
        const uint64_t c = (first + (uint64_t)i) / (uint64_t)cluster_size;
        const uint64_t there = (c * step + s) % (n / (uint64_t)cluster_size);

        begin_block(i, there * (uint64_t)cluster_size + (uint64_t)(i % cluster_size));
    }
    go(NULL, next_ready(0, turn));
    emu_copy_forget(n_resident);
}

uint64_t emu_seed(void)
{
    const char *text = getenv("SW_EMULATE_SEED");

    return text ? strtoull(text, NULL, 10) : 0;
}

/* The blocks, or clusters, in their order, or with a seed in another. */
static void run_blocks(void)
{
    const uint64_t n = (uint64_t)launch->grid.x * launch->grid.y * launch->grid.z, s = emu_seed();
    const uint64_t fit = (uint64_t)(EMU_BLOCKS_MAX / cluster_size * cluster_size);
    const uint64_t at_once = launch->is_hopper ? fit : 1;
    uint64_t step = 1;

    if (s) {
        static const uint64_t primes[] = {1000003, 998244353, 7919, 104729};

        for (int i = 0; i < 4 && step == 1; i++)
            if (n % primes[(s + (uint64_t)i) % 4]) step = primes[(s + (uint64_t)i) % 4];
        turn = (int)(s % (uint64_t)n_threads);
    } else turn = n_threads - 1;
    for (uint64_t i = 0; i < n; i += at_once)
        run_some(i, n - i < at_once ? n - i : at_once, step, s);
}

/* What was compiled for devices without clusters would do nothing in one, or something else. */
static bool is_possible(const emu_launch_args *l)
{
    const uint64_t n = (uint64_t)l->block.x * l->block.y * l->block.z;

    return n >= 1 && n <= EMU_THREADS_MAX && l->block.z <= 64 && l->grid.x && l->grid.y &&
           l->grid.z && l->grid.x <= INT32_MAX && l->grid.y <= 65535 && l->grid.z <= 65535 &&
           l->shared_bytes <= emu_shared_max() && l->cluster <= EMU_CLUSTER_MAX &&
           (l->cluster <= 1 || (l->is_hopper && l->grid.x % (unsigned)l->cluster == 0));
}

/* Names of kernels that ran go to the end of the file SW_EMULATE_KERNELS, each once. */
static void note_kernel(void)
{
    static const char *known[KERNELS_MAX];
    static int n_known;
    const char *path = getenv("SW_EMULATE_KERNELS");
    FILE *f;

    for (int i = 0; i < n_known; i++)
        if (known[i] == emu_kernel) return;
    if (!path || n_known == KERNELS_MAX) return;
    known[n_known++] = emu_kernel;
    f = fopen(path, "a");
    if (!f) return;
    fprintf(f, "%s\n", emu_kernel);
    fclose(f);
}

bool emu_run(const emu_launch_args *l)
{
    if (!is_possible(l)) return false;
    pthread_mutex_lock(&mutex);
    launch = l;
    n_threads = (int)(l->block.x * l->block.y * l->block.z);
    cluster_size = l->cluster > 1 ? l->cluster : 1;
    blockDim = l->block;
    gridDim = l->grid;
    run_blocks();
    note_kernel();
    pthread_mutex_unlock(&mutex);
    return true;
}

void emu_enter(const char *kernel) { emu_kernel = kernel; }
