/* block.c - blocks of threads as fibers: see emulate.h.
 *
 * A thread runs until it waits, then the next one that can run goes on, in the order of their
 * numbers; SW_EMULATE_SEED turns that order and shuffles the blocks, for what holds in one order
 * only. If nobody can run, the block has a barrier that not all come to.
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

#define STACK_BYTES ((size_t)128 << 10)
#define GUARD_BYTES ((size_t)4096)
#define BARRIERS 16
#define KERNELS_MAX 4096 /* of a program; instances of templates count */

typedef enum state { ENDED, READY, AT_BARRIER, AT_MEETING } state;

typedef struct fiber {
    void *sp;    /* of one that does not run */
    char *stack;
    void *fake;  /* what ASan keeps of it */
    state state;
    const char *waits_for;
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
    uint32_t warps;
    int waiting[EMU_THREADS_MAX];
} barrier;

emu_dim threadIdx, blockIdx, blockDim, gridDim;
int emu_id;
const char *emu_kernel = "?";

static fiber fibers[EMU_THREADS_MAX];
static warp warps[EMU_WARPS_MAX];
static barrier barriers[BARRIERS];
static int n_threads, n_alive, turn;
static const emu_launch_args *launch;
static int came_from; /* of the latest switch */
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

static void use(int id)
{
    emu_id = id;
    threadIdx = fibers[id].at;
    emu_shared_thread(id);
}

/* From the fiber that runs to another; -1 is the launch. A fiber that has ended stays behind. */
static void go(int from, int to)
{
    void **keep = from < 0 ? &main_fake : &fibers[from].fake;

    if (to >= 0) use(to);
    came_from = from;
    __sanitizer_start_switch_fiber(from >= 0 && fibers[from].state == ENDED ? NULL : keep,
                                   to < 0 ? main_bottom : fibers[to].stack + GUARD_BYTES,
                                   to < 0 ? main_bytes : STACK_BYTES - GUARD_BYTES);
    emu_switch(from < 0 ? &main_sp : &fibers[from].sp, to < 0 ? main_sp : fibers[to].sp);
    __sanitizer_finish_switch_fiber(*keep, NULL, NULL);
}

/* Lanes of one warp first, for they wait for each other most. */
static int next_ready(int after)
{
    const int first = after < 0 ? turn : after;

    for (int i = 1; i <= n_threads; i++) {
        const int id = (first + i) % n_threads;

        if (fibers[id].state == READY) return id;
    }
    return -1;
}

static void explain_standstill(void)
{
    static const int shown = 3;
    int n = 0;

    fprintf(stderr, "ERROR: %s: %d of %d threads have ended and nobody can go on:\n", emu_kernel,
            n_threads - n_alive, n_threads);
    for (int id = 0; id < n_threads; id++) {
        const fiber *f = &fibers[id];
        const bool is_new = id == 0 || fibers[id - 1].state != f->state ||
                            fibers[id - 1].waits_for != f->waits_for;

        if (f->state != ENDED && is_new && n++ < 4 * shown)
            fprintf(stderr, "  thread %d and those behind it wait at %s\n", id, f->waits_for);
    }
    emu_fault("a barrier that not all come to");
}

static void wait_here(state why, const char *what)
{
    const int id = emu_id;
    int next;

    fibers[id].state = why;
    fibers[id].waits_for = what;
    next = next_ready(id);
    if (next < 0) explain_standstill();
    go(id, next);
}

/* ---- warps ---- */

static void close_meeting(warp *w, meeting *m)
{
    const int first = (int)(w - warps) * EMU_WARP;

    if (m->finish) m->finish(m->brought);
    if (m->orders) emu_shared_met_lanes((int)(w - warps), m->there);
    for (int lane = 0; lane < EMU_WARP; lane++)
        if (m->there >> lane & 1) fibers[first + lane].state = READY;
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
    warp *w = &warps[id / EMU_WARP];
    meeting *m;

    if (!(mask >> lane & 1)) emu_fault("%s for lanes %08x by lane %d", what, mask, lane);
    m = find_meeting(w, mask, what, finish);
    m->there |= 1u << lane;
    m->brought[lane] = mine;
    m->orders = orders;
    if ((m->there & w->alive) == (mask & w->alive)) close_meeting(w, m);
    else wait_here(AT_MEETING, what);
}

/* ---- blocks ---- */

static void open_barrier(barrier *b)
{
    const bool is_all = b->n_awaited == 0;

    for (int i = 0; i < b->n_there; i++) fibers[b->waiting[i]].state = READY;
    emu_shared_met_warps(is_all ? ~0u : b->warps, is_all);
    b->n_there = 0;
    b->warps = 0;
}

static bool is_full(const barrier *b)
{
    return b->n_there > 0 && b->n_there == (b->n_awaited ? b->n_awaited : n_alive);
}

void emu_barrier(int id, int n_awaited)
{
    barrier *b = &barriers[id];

    if (id < 0 || id >= BARRIERS || n_awaited % EMU_WARP != 0 || n_awaited > n_threads)
        emu_fault("barrier %d of %d threads", id, n_awaited);
    if (b->n_there > 0 && b->n_awaited != n_awaited)
        emu_fault("barrier %d of %d threads, which others say is of %d", id, n_awaited,
                  b->n_awaited);
    b->n_awaited = n_awaited;
    b->waiting[b->n_there++] = emu_id;
    b->warps |= 1u << emu_id / EMU_WARP;
    if (is_full(b)) {
        open_barrier(b);
        return;
    }
    wait_here(AT_BARRIER, n_awaited ? "a barrier of some warps" : "__syncthreads()");
}

/* Those that still wait may have waited for this thread alone. */
static void end_thread(int id)
{
    warp *w = &warps[id / EMU_WARP];

    fibers[id].state = ENDED;
    n_alive--;
    w->alive &= ~(1u << id % EMU_WARP);
    for (int i = w->n_meetings; i-- > 0;) {
        meeting *m = &w->meetings[i];

        if ((m->there & w->alive) == (m->mask & w->alive)) close_meeting(w, m);
    }
    if (is_full(&barriers[0])) open_barrier(&barriers[0]);
}

static void run_thread(void)
{
    int next;

    __sanitizer_finish_switch_fiber(NULL, came_from < 0 ? &main_bottom : NULL,
                                    came_from < 0 ? &main_bytes : NULL);
    launch->call(launch->ctx);
    end_thread(emu_id);
    next = next_ready(emu_id);
    if (next < 0 && n_alive > 0) explain_standstill();
    go(emu_id, next);
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
static void begin_thread(int id)
{
    fiber *f = &fibers[id];
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

static void run_block(emu_dim at)
{
    blockIdx = at;
    n_alive = n_threads;
    memset(barriers, 0, sizeof barriers);
    for (int i = 0; i < (n_threads + EMU_WARP - 1) / EMU_WARP; i++) {
        const int n = n_threads - i * EMU_WARP;

        warps[i].n_meetings = 0;
        warps[i].alive = n >= EMU_WARP ? ~0u : (1u << n) - 1;
    }
    emu_shared_begin(launch->shared_bytes);
    for (int id = 0; id < n_threads; id++) begin_thread(id);
    go(-1, next_ready(-1));
    emu_copy_forget();
}

static uint64_t seed(void)
{
    const char *text = getenv("SW_EMULATE_SEED");

    return text ? strtoull(text, NULL, 10) : 0;
}

/* The blocks in their order, or with a seed in another: i to i * step + start, step prime to n. */
static void run_blocks(void)
{
    const emu_dim g = launch->grid;
    const uint64_t n = (uint64_t)g.x * g.y * g.z, s = seed();
    uint64_t step = 1;

    if (s) {
        static const uint64_t primes[] = {1000003, 998244353, 7919, 104729};

        for (int i = 0; i < 4 && step == 1; i++)
            if (n % primes[(s + (uint64_t)i) % 4]) step = primes[(s + (uint64_t)i) % 4];
        turn = (int)(s % (uint64_t)n_threads);
    } else turn = n_threads - 1;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t at = (i * step + s) % n;

        run_block((emu_dim){(unsigned)(at % g.x), (unsigned)(at / g.x % g.y),
                            (unsigned)(at / g.x / g.y)});
    }
}

static bool is_possible(const emu_launch_args *l)
{
    const uint64_t n = (uint64_t)l->block.x * l->block.y * l->block.z;

    return n >= 1 && n <= EMU_THREADS_MAX && l->block.z <= 64 && l->grid.x && l->grid.y &&
           l->grid.z && l->grid.x <= INT32_MAX && l->grid.y <= 65535 && l->grid.z <= 65535 &&
           l->shared_bytes <= EMU_SHARED_MAX;
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
    blockDim = l->block;
    gridDim = l->grid;
    run_blocks();
    note_kernel();
    pthread_mutex_unlock(&mutex);
    return true;
}

void emu_enter(const char *kernel) { emu_kernel = kernel; }
