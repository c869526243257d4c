/* shared.c - the shared memory of the block that runs: see emulate.h.
 *
 * Arrays lie in an arena with red zones between them, below 4 GB so that an address has 32 bits as
 * on a device. For each byte it is kept who wrote it last and who read it since, and when. Time
 * goes on by one whenever threads meet at a barrier; a thread has seen what others did before the
 * latest meeting of both. What it has not seen, and one of the two wrote, is a race, whatever
 * order the threads happened to run in. A byte that nobody wrote in this block has no value.
 *
 * Kernels come here through ASan: its calls for loads and stores are wrapped by the linker.
 */
#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/emulate/emulate.h"

#define ARENA_BYTES ((size_t)512 << 10)
#define RED_BYTES ((size_t)128)
#define ARRAYS_MAX 64
#define DYNAMIC_ALIGN ((size_t)1024)

/* Who: a thread, several of a warp, several of the block. */
#define OF_WARP EMU_THREADS_MAX
#define OF_BLOCK (OF_WARP + EMU_WARPS_MAX)
#define BY_ATOMICS 0x8000

typedef struct access_note {
    uint32_t time, who;
} access_note;

typedef struct cell {
    access_note write, read;
} cell;

typedef struct array {
    const void *key;
    const char *name;
    unsigned char *at;
    size_t n_bytes;
} array;

static unsigned char *arena;
static cell cells[ARENA_BYTES];
static array arrays[ARRAYS_MAX]; /* of the block; the first is what the launch gave */
static int n_arrays;
static size_t n_used, n_static;
static uint32_t now = 1, began, all_met;
static uint32_t warps_met[EMU_WARPS_MAX][EMU_WARPS_MAX]; /* [who, whose work it has seen] */
static uint32_t lanes_met[EMU_THREADS_MAX][EMU_WARP];
static int me;

static void settle_doubt(void);

/* ---- arrays ---- */

static void make_arena(void)
{
    if (arena) return;
    arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (arena == MAP_FAILED || (uintptr_t)arena % DYNAMIC_ALIGN) {
        fprintf(stderr, "no memory below 4 GB for shared memory\n");
        _exit(1);
    }
    n_used = ARENA_BYTES;
}

/* At a multiple of `align` and of no more, so that who needs more is found. */
static array *add_array(const void *key, size_t n_bytes, size_t align, const char *name)
{
    size_t at = n_used + RED_BYTES;
    array *a = &arrays[n_arrays];

    at = (at + 2 * align - 1) / (2 * align) * (2 * align) + align;
    if (n_arrays == ARRAYS_MAX || at + n_bytes + RED_BYTES > ARENA_BYTES)
        emu_fault("too much shared memory with %s", name);
    n_arrays++;
    *a = (array){key, name, arena + at, n_bytes};
    n_used = at + n_bytes;
    __asan_unpoison_memory_region(a->at, n_bytes);
    memset(a->at, 0xff, n_bytes);
    return a;
}

void emu_shared_begin(size_t dynamic_bytes)
{
    settle_doubt();
    make_arena();
    __asan_poison_memory_region(arena, n_used + RED_BYTES < ARENA_BYTES ? n_used + RED_BYTES
                                                                        : ARENA_BYTES);
    began = now++;
    all_met = 0;
    memset(warps_met, 0, sizeof warps_met);
    memset(lanes_met, 0, sizeof lanes_met);
    n_arrays = 0;
    n_used = n_static = 0;
    (void)add_array(NULL, dynamic_bytes, DYNAMIC_ALIGN, "what the launch gave");
}

void *emu_shared_take(const void *key, size_t size_bytes, size_t align, const char *name)
{
    for (int i = 1; i < n_arrays; i++)
        if (arrays[i].key == key) return arrays[i].at;
    n_static += size_bytes;
    if (n_static > EMU_STATIC_MAX || n_static + arrays[0].n_bytes > EMU_SHARED_MAX)
        emu_fault("%zu bytes of shared memory declared and %zu from the launch", n_static,
                  arrays[0].n_bytes);
    return add_array(key, size_bytes, align, name)->at;
}

void *emu_dynamic(void) { return arrays[0].at; }

uint32_t emu_shared_address(const void *p)
{
    if ((uintptr_t)p - (uintptr_t)arena >= ARENA_BYTES) emu_fault("no address of shared memory");
    return (uint32_t)(uintptr_t)p;
}

void *emu_shared_pointer(uint32_t address) { return (void *)(uintptr_t)address; }

/* ---- who has seen what ---- */

void emu_shared_met_lanes(int warp, uint32_t mask)
{
    now++;
    if (mask == ~0u) {
        warps_met[warp][warp] = now;
        return;
    }
    for (int i = 0; i < EMU_WARP; i++)
        for (int j = 0; mask >> i & 1 && j < EMU_WARP; j++)
            if (mask >> j & 1) lanes_met[warp * EMU_WARP + i][j] = now;
}

void emu_shared_met_warps(uint32_t mask, bool is_all)
{
    now++;
    if (is_all) all_met = now;
    for (int i = 0; !is_all && i < EMU_WARPS_MAX; i++)
        for (int j = 0; mask >> i & 1 && j < EMU_WARPS_MAX; j++)
            if (mask >> j & 1) warps_met[i][j] = now;
}

static bool has_seen(access_note n)
{
    const int who = (int)(n.who & ~(uint32_t)BY_ATOMICS), warp = me / EMU_WARP;

    if (n.time < all_met || who == me) return true;
    if (who == OF_BLOCK) return false;
    if (who >= OF_WARP) return n.time < warps_met[warp][who - OF_WARP];
    if (n.time < warps_met[warp][who / EMU_WARP]) return true;
    return who / EMU_WARP == warp && n.time < lanes_met[me][who % EMU_WARP];
}

/* ---- what goes wrong ---- */

static const char *name_of(int who, char text[48])
{
    who &= ~BY_ATOMICS;
    if (who == OF_BLOCK) snprintf(text, 48, "threads of several warps");
    else if (who >= OF_WARP) snprintf(text, 48, "threads of warp %d", who - OF_WARP);
    else snprintf(text, 48, "thread %d", who);
    return text;
}

static void explain(const unsigned char *p, const char *what, const access_note *other,
                    const char *did)
{
    const array *a = &arrays[0];
    char text[48];

    for (int i = 1; i < n_arrays; i++)
        if (p >= arrays[i].at && p < arrays[i].at + arrays[i].n_bytes) a = &arrays[i];
    if (!other)
        emu_fault("%s byte %td of %s, which nobody wrote", what, p - a->at, a->name);
    emu_fault("a race: %s byte %td of %s, which %s %s without a barrier between", what, p - a->at,
              a->name, name_of((int)other->who, text), did);
}

/* Kernels whose tiles have rows that nobody fills, of which no result is used: those come as NaNs,
 * which would show in what is used. */
static const char *const has_idle_rows[] = {
    "swk_attention_decode", /* of heads that are not there */
    "swk_chunk_make",     /* of tokens behind the last, of columns behind the last channel: */
    "swk_chunk_channels", /* sw_rows_pair stores zeros in their place */
};

static bool may_read_anything(void)
{
    for (size_t i = 0; i < sizeof has_idle_rows / sizeof *has_idle_rows; i++)
        if (strcmp(has_idle_rows[i], emu_kernel) == 0) return true;
    return false;
}

/* Two threads may write the same value: what lay there is kept until the second has written. */
static struct {
    unsigned char *p, before;
    access_note other;
    int thread;
} doubt;

static void doubt_write(unsigned char *p, const access_note *other)
{
    if (doubt.p) return;
    doubt.p = p;
    doubt.before = *p;
    doubt.other = *other;
    doubt.thread = me;
}

static void settle_doubt(void)
{
    unsigned char *p = doubt.p;

    doubt.p = NULL;
    if (!p || *p == doubt.before) return;
    me = doubt.thread;
    explain(p, "writes", &doubt.other, "wrote");
}

void emu_shared_thread(int id)
{
    settle_doubt();
    me = id;
}

/* ---- accesses ---- */

static bool is_shared(uintptr_t p) { return p - (uintptr_t)arena < ARENA_BYTES; }

/* One more reader of a byte. */
static void add_reader(access_note *n)
{
    const int warp = me / EMU_WARP;

    const int who = (int)n->who;

    if (n->time <= began || has_seen(*n)) n->who = (uint32_t)me;
    else if (who < OF_WARP ? who / EMU_WARP == warp : who == OF_WARP + warp)
        n->who = (uint32_t)(OF_WARP + warp);
    else n->who = OF_BLOCK;
    n->time = now;
}

static void read_byte(unsigned char *p, cell *c)
{
    if (c->write.time <= began) {
        if (may_read_anything()) return;
        explain(p, "reads", NULL, NULL);
    }
    if (!has_seen(c->write)) explain(p, "reads", &c->write, "wrote");
    if (c->read.who != (uint32_t)me || c->read.time != now) add_reader(&c->read);
}

static void write_byte(unsigned char *p, cell *c, uint32_t is_atomic)
{
    if (c->write.time > began && !(is_atomic & c->write.who) && !has_seen(c->write))
        doubt_write(p, &c->write);
    if (c->read.time > began && !has_seen(c->read)) explain(p, "writes", &c->read, "read");
    c->write = (access_note){now, (uint32_t)me | is_atomic};
}

/* The bytes of one access mostly have one story, which is then looked at once. */
static void read_bytes(uintptr_t p, size_t n)
{
    cell *c = &cells[p - (uintptr_t)arena], before = *c;

    settle_doubt();
    read_byte((unsigned char *)p, c);
    for (size_t i = 1; i < n; i++)
        if (memcmp(&c[i], &before, sizeof before) == 0) c[i] = *c;
        else read_byte((unsigned char *)p + i, &c[i]);
}

static void write_bytes(uintptr_t p, size_t n, uint32_t is_atomic)
{
    cell *c = &cells[p - (uintptr_t)arena], before = *c;

    settle_doubt();
    write_byte((unsigned char *)p, c, is_atomic);
    for (size_t i = 1; i < n; i++)
        if (memcmp(&c[i], &before, sizeof before) == 0 && !doubt.p) c[i] = *c;
        else write_byte((unsigned char *)p + i, &c[i], is_atomic);
}

void __asan_report_load_n(void *p, unsigned long n);
void __asan_report_store_n(void *p, unsigned long n);

void emu_read(const void *p, size_t n_bytes)
{
    if (__asan_region_is_poisoned((void *)(uintptr_t)p, n_bytes))
        __asan_report_load_n((void *)(uintptr_t)p, n_bytes);
    if (is_shared((uintptr_t)p)) read_bytes((uintptr_t)p, n_bytes);
}

void emu_write(void *p, size_t n_bytes)
{
    if (__asan_region_is_poisoned(p, n_bytes)) __asan_report_store_n(p, n_bytes);
    if (is_shared((uintptr_t)p)) write_bytes((uintptr_t)p, n_bytes, 0);
}

void emu_atomic(void *p, size_t n_bytes)
{
    const cell *c = &cells[(uintptr_t)p - (uintptr_t)arena];

    if (__asan_region_is_poisoned(p, n_bytes)) __asan_report_store_n(p, n_bytes);
    if (!is_shared((uintptr_t)p)) return;
    if (c->write.time <= began) explain(p, "adds to", NULL, NULL);
    write_bytes((uintptr_t)p, n_bytes, BY_ATOMICS);
}

/* What the compiler calls before each load and store of a kernel. */
#define EMU_HOOK(size)                                                                   \
    void __real___asan_load##size(uintptr_t p);                                          \
    void __real___asan_store##size(uintptr_t p);                                         \
    void __wrap___asan_load##size(uintptr_t p);                                          \
    void __wrap___asan_store##size(uintptr_t p);                                         \
    void __wrap___asan_load##size(uintptr_t p)                                           \
    {                                                                                    \
        __real___asan_load##size(p);                                                     \
        if (is_shared(p)) read_bytes(p, size);                                           \
    }                                                                                    \
    void __wrap___asan_store##size(uintptr_t p)                                          \
    {                                                                                    \
        __real___asan_store##size(p);                                                    \
        if (is_shared(p)) write_bytes(p, size, 0);                                       \
    }
EMU_HOOK(1)
EMU_HOOK(2)
EMU_HOOK(4)
EMU_HOOK(8)
EMU_HOOK(16)

void __real___asan_loadN(uintptr_t p, size_t n);
void __real___asan_storeN(uintptr_t p, size_t n);
void __wrap___asan_loadN(uintptr_t p, size_t n);
void __wrap___asan_storeN(uintptr_t p, size_t n);

void __wrap___asan_loadN(uintptr_t p, size_t n)
{
    __real___asan_loadN(p, n);
    if (is_shared(p)) read_bytes(p, n);
}

void __wrap___asan_storeN(uintptr_t p, size_t n)
{
    __real___asan_storeN(p, n);
    if (is_shared(p)) write_bytes(p, n, 0);
}
