/* shared.c - the shared memory of the blocks that are resident: see emulate.h.
 *
 * Arrays lie in the arena of their block with red zones between them. For each byte it is kept who
 * wrote it last and who read it since, and when. Time goes on by one whenever threads meet at a
 * barrier; a thread has seen what others did before the latest meeting of both. What it has not
 * seen, and one of the two wrote, is a race, whatever order the threads happened to run in. A byte
 * that nobody wrote in this block has no value.
 *
 * In kernels of Hopper's threads meet in more ways, and the copy engine writes: there clocks.c
 * knows who has seen what, and several readers of a byte are kept as a list.
 *
 * Kernels come here through ASan: its calls for loads and stores are wrapped by the linker.
 */
#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/emulate/emulate.h"

#define ARENA_BYTES ((size_t)256 << 10) /* of a block: what a descriptor of an operand can reach */
#define ARENAS_BYTES (EMU_BLOCKS_MAX * ARENA_BYTES)
#define RANK_SHIFT 24
#define RED_BYTES ((size_t)128)
#define ARRAYS_MAX 64
#define DYNAMIC_ALIGN ((size_t)1024)

/* Who: a thread, several of a warp, several of the block. */
#define OF_WARP EMU_THREADS_MAX
#define OF_BLOCK (OF_WARP + EMU_WARPS_MAX)
#define BY_ATOMICS 0x8000u
#define LIST 0x80000000u /* of readers */
#define READERS_MAX (1u << 26)

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

/* One more reader than `rest` has. */
typedef struct reader {
    uint32_t time, who, rest;
} reader;

/* Of a block. */
typedef struct space {
    array arrays[ARRAYS_MAX]; /* the first is what the launch gave */
    int n_arrays;
    size_t n_used, n_static;
    uint32_t began, all_met;
    uint32_t warps_met[EMU_WARPS_MAX][EMU_WARPS_MAX]; /* [who, whose work it has seen] */
    uint32_t lanes_met[EMU_THREADS_MAX][EMU_WARP];
} space;

static unsigned char *arena; /* the first */
static cell cells[ARENAS_BYTES];
static space spaces[EMU_BLOCKS_MAX], *here = spaces;
static reader *readers; /* lists, of all blocks; the first is none */
static uint32_t n_readers = 1;
static uint32_t *fences; /* [who]: its latest proxy fence */
static int me;           /* who runs: its number in the block, or its index of clocks */
uint32_t emu_now = 1;

static void settle_doubt(void);

/* ---- arrays ---- */

static void make_arena(void)
{
    if (arena) return;
    arena = mmap(NULL, ARENAS_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    readers = mmap(NULL, READERS_MAX * sizeof *readers, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    fences = calloc(EMU_CLUSTER_MAX * (size_t)(EMU_THREADS_MAX + EMU_MBARRIERS_MAX) *
                    EMU_BLOCKS_MAX, sizeof *fences);
    if (arena == MAP_FAILED || readers == MAP_FAILED || !fences) {
        fprintf(stderr, "no memory for shared memory\n");
        _exit(1);
    }
    for (int i = 0; i < EMU_BLOCKS_MAX; i++) spaces[i].n_used = ARENA_BYTES;
}

static unsigned char *arena_of(int block) { return arena + (size_t)block * ARENA_BYTES; }

/* At a multiple of `align` and of no more, so that who needs more is found. */
static array *add_array(int block, const void *key, size_t n_bytes, size_t align, const char *name)
{
    space *s = &spaces[block];
    size_t at = s->n_used + RED_BYTES;
    array *a = &s->arrays[s->n_arrays];

    at = (at + 2 * align - 1) / (2 * align) * (2 * align) + align;
    if (s->n_arrays == ARRAYS_MAX || at + n_bytes + RED_BYTES > ARENA_BYTES)
        emu_fault("too much shared memory with %s", name);
    s->n_arrays++;
    *a = (array){key, name, arena_of(block) + at, n_bytes};
    s->n_used = at + n_bytes;
    __asan_unpoison_memory_region(a->at, n_bytes);
    memset(a->at, 0xff, n_bytes);
    return a;
}

void emu_shared_begin(size_t dynamic_bytes)
{
    space *s = &spaces[emu_block];

    settle_doubt();
    make_arena();
    __asan_poison_memory_region(arena_of(emu_block), s->n_used + RED_BYTES < ARENA_BYTES
                                                         ? s->n_used + RED_BYTES
                                                         : ARENA_BYTES);
    s->began = emu_now++;
    s->all_met = 0;
    memset(s->warps_met, 0, sizeof s->warps_met);
    memset(s->lanes_met, 0, sizeof s->lanes_met);
    s->n_arrays = 0;
    s->n_used = s->n_static = 0;
    here = s;
    if (emu_block == 0) n_readers = 1;
    (void)add_array(emu_block, NULL, dynamic_bytes, DYNAMIC_ALIGN, "what the launch gave");
    emu_mbarriers_begin();
}

static array *take_array(int block, const void *key, size_t n_bytes, size_t align, const char *name)
{
    space *s = &spaces[block];

    for (int i = 1; i < s->n_arrays; i++)
        if (s->arrays[i].key == key) return &s->arrays[i];
    s->n_static += n_bytes;
    if (s->n_static > EMU_STATIC_MAX || s->n_static + s->arrays[0].n_bytes > emu_shared_max())
        emu_fault("%zu bytes of shared memory declared and %zu from the launch", s->n_static,
                  s->arrays[0].n_bytes);
    return add_array(block, key, n_bytes, align, name);
}

void *emu_shared_take(const void *key, size_t size_bytes, size_t align, const char *name)
{
    return take_array(emu_block, key, size_bytes, align, name)->at;
}

void *emu_dynamic(void) { return here->arrays[0].at; }

uint32_t emu_shared_address(const void *p)
{
    const uintptr_t at = (uintptr_t)p - (uintptr_t)arena_of(emu_block);

    if (at >= ARENA_BYTES) emu_fault("no address of shared memory");
    return (uint32_t)at;
}

void *emu_shared_pointer(uint32_t address)
{
    const uint32_t rank = address >> RANK_SHIFT, at = address & ((1u << RANK_SHIFT) - 1);

    if (at >= ARENA_BYTES) emu_fault("%08x is no address of shared memory", address);
    return arena_of(rank ? emu_block_of_rank(rank - 1) : emu_block) + at;
}

/* Blocks of a cluster run one kernel and have their arrays in the same places. */
uint32_t emu_shared_map(uint32_t address, uint32_t rank)
{
    if (address >> RANK_SHIFT) emu_fault("%08x is mapped twice", address);
    return address | (rank + 1) << RANK_SHIFT;
}

/* ---- who has seen what ---- */

void emu_shared_met_lanes(int warp, uint32_t mask)
{
    emu_now++;
    emu_clock_meet_lanes(warp, mask);
    if (mask == ~0u) {
        here->warps_met[warp][warp] = emu_now;
        return;
    }
    for (int i = 0; i < EMU_WARP; i++)
        for (int j = 0; mask >> i & 1 && j < EMU_WARP; j++)
            if (mask >> j & 1) here->lanes_met[warp * EMU_WARP + i][j] = emu_now;
}

void emu_shared_met_warps(uint32_t mask, bool is_all)
{
    emu_now++;
    if (is_all) here->all_met = emu_now;
    for (int i = 0; !is_all && i < EMU_WARPS_MAX; i++)
        for (int j = 0; mask >> i & 1 && j < EMU_WARPS_MAX; j++)
            if (mask >> j & 1) here->warps_met[i][j] = emu_now;
}

static bool has_seen_list(uint32_t i)
{
    for (; i; i = readers[i].rest)
        if (!emu_clock_has(readers[i].who, readers[i].time)) return false;
    return true;
}

static bool has_seen(access_note n)
{
    const int who = (int)(n.who & ~BY_ATOMICS), warp = me / EMU_WARP;

    if (emu_has_clocks())
        return n.who & LIST ? has_seen_list(n.who & ~LIST) : emu_clock_has((uint32_t)who, n.time);
    if (n.time < here->all_met || who == me) return true;
    if (who == OF_BLOCK) return false;
    if (who >= OF_WARP) return n.time < here->warps_met[warp][who - OF_WARP];
    if (n.time < here->warps_met[warp][who / EMU_WARP]) return true;
    return who / EMU_WARP == warp && n.time < here->lanes_met[me][who % EMU_WARP];
}

/* ---- what goes wrong ---- */

static const char *name_of(uint32_t who, char text[64])
{
    const int id = (int)(who & ~BY_ATOMICS);

    if (who & LIST) {
        uint32_t i = who & ~LIST;

        while (i && emu_clock_has(readers[i].who, readers[i].time)) i = readers[i].rest;
        who = readers[i].who;
    }
    if (emu_has_clocks()) emu_clock_name(who & ~BY_ATOMICS, text);
    else if (id == OF_BLOCK) snprintf(text, 64, "threads of several warps");
    else if (id >= OF_WARP) snprintf(text, 64, "threads of warp %d", id - OF_WARP);
    else snprintf(text, 64, "thread %d", id);
    return text;
}

static void explain(const unsigned char *p, const char *what, const access_note *other,
                    const char *did)
{
    const space *s = &spaces[(size_t)(p - arena) / ARENA_BYTES];
    const array *a = &s->arrays[0];
    char text[64];

    for (int i = 1; i < s->n_arrays; i++)
        if (p >= s->arrays[i].at && p < s->arrays[i].at + s->arrays[i].n_bytes) a = &s->arrays[i];
    if (!other)
        emu_fault("%s byte %td of %s, which nobody wrote", what, p - a->at, a->name);
    emu_fault("a race: %s byte %td of %s, which %s %s without a barrier between", what, p - a->at,
              a->name, name_of(other->who, text), did);
}

/* Kernels whose tiles have rows that nobody fills, of which no result is used: those come as NaNs,
 * which would show in what is used. */
static const char *const has_idle_rows[] = {
    "swk_attention_decode", /* of heads that are not there */
    "swk_chunk_make",       /* of tokens behind the last, of columns behind the last channel: */
    "swk_chunk_channels",   /* sw_rows_pair stores zeros in their place */
    "swk_weight_only_wgmma_sm90", /* of tokens that are not there, as those that follow */
    "swk_w4a16_persistent_sm90", "swk_w8a8_split_k_sm90", "swk_w8a8_two_ctas_sm90",
    "swk_w8a8_two_ctas_rows_sm90",
    "swk_w8a8_persistent_sm90", "swk_w8a8_token_rows_sm90", "swk_routed_tall_sm90",
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
    here = &spaces[emu_block];
    me = emu_has_clocks() ? (int)emu_clock_me() : id;
}

/* ---- accesses ---- */

static bool is_shared(uintptr_t p) { return p - (uintptr_t)arena < ARENAS_BYTES; }

static uint32_t began_at(const void *p)
{
    return spaces[(size_t)((const unsigned char *)p - arena) / ARENA_BYTES].began;
}

static uint32_t with_reader(uint32_t rest, uint32_t who, uint32_t time)
{
    if (n_readers == READERS_MAX) emu_fault("too many readers of shared memory");
    readers[n_readers] = (reader){time, who, rest};
    return n_readers++;
}

static bool is_in_list(uint32_t i)
{
    while (i && readers[i].who != (uint32_t)me) i = readers[i].rest;
    return i != 0;
}

/* Who knows of that read will know of this one too. */
static bool has_read_since_release(uint32_t i)
{
    while (readers[i].who != (uint32_t)me) i = readers[i].rest;
    return readers[i].time >= emu_clock_released();
}

/* Those of list i of which this thread knows nothing; bytes side by side mostly have one list. */
static uint32_t list_with_me(access_note n)
{
    static access_note latest;
    static uint32_t latest_me, latest_time, answer;
    uint32_t list = 0;

    if (memcmp(&n, &latest, sizeof n) == 0 && latest_me == (uint32_t)me && latest_time == emu_now)
        return answer;
    latest = n;
    latest_me = (uint32_t)me;
    latest_time = emu_now;
    if (!(n.who & LIST)) list = with_reader(0, n.who, n.time);
    else if (!is_in_list(n.who & ~LIST)) list = n.who & ~LIST;
    else if (has_read_since_release(n.who & ~LIST)) return answer = n.who;
    else
        for (uint32_t i = n.who & ~LIST; i; i = readers[i].rest)
            if (!emu_clock_has(readers[i].who, readers[i].time))
                list = with_reader(list, readers[i].who, readers[i].time);
    return answer = LIST | with_reader(list, (uint32_t)me, emu_now);
}

/* One more reader of a byte. */
static void add_reader(access_note *n, uint32_t began)
{
    const int warp = me / EMU_WARP;
    const int who = (int)n->who;

    if (n->time <= began || has_seen(*n)) n->who = (uint32_t)me;
    else if (emu_has_clocks()) n->who = list_with_me(*n);
    else if (who < OF_WARP ? who / EMU_WARP == warp : who == OF_WARP + warp)
        n->who = (uint32_t)(OF_WARP + warp);
    else n->who = OF_BLOCK;
    n->time = emu_now;
}

static void read_byte(unsigned char *p, cell *c)
{
    const uint32_t began = began_at(p);

    if (c->write.time <= began) {
        if (may_read_anything()) return;
        explain(p, "reads", NULL, NULL);
    }
    if (!has_seen(c->write)) explain(p, "reads", &c->write, "wrote");
    if (c->read.who != (uint32_t)me || c->read.time != emu_now) add_reader(&c->read, began);
}

static void write_byte(unsigned char *p, cell *c, uint32_t is_atomic)
{
    const uint32_t began = began_at(p);

    if (c->write.time > began && !(is_atomic & c->write.who) && !has_seen(c->write))
        doubt_write(p, &c->write);
    if (c->read.time > began && !has_seen(c->read)) explain(p, "writes", &c->read, "read");
    c->write = (access_note){emu_now, (uint32_t)me | is_atomic};
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
    const cell *c;

    if (__asan_region_is_poisoned(p, n_bytes)) __asan_report_store_n(p, n_bytes);
    if (!is_shared((uintptr_t)p)) return;
    c = &cells[(uintptr_t)p - (uintptr_t)arena];
    if (c->write.time <= began_at(p)) explain(p, "adds to", NULL, NULL);
    write_bytes((uintptr_t)p, n_bytes, BY_ATOMICS);
}

void emu_shared_peek(void *p, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned char *at = (unsigned char *)p + i;
        const cell *c = &cells[at - arena];

        if (c->write.time <= began_at(at)) explain(at, "looks at", NULL, NULL);
        if (!has_seen(c->write)) explain(at, "looks at", &c->write, "wrote");
    }
}

/* ---- by the copy engine and products of warpgroups ---- */

void emu_proxy_fence(void)
{
    if (emu_has_clocks()) fences[me] = ++emu_now;
}

/* What a thread stored the engine finds once that thread, or who asks it, has come by a fence.
 * Rows that nobody filled are read all the same, for columns of which no result is used. */
void emu_async_read(const void *p, size_t n_bytes)
{
    if (__asan_region_is_poisoned((void *)(uintptr_t)p, n_bytes))
        __asan_report_load_n((void *)(uintptr_t)p, n_bytes);
    for (size_t i = 0; i < n_bytes; i++) {
        const unsigned char *at = (const unsigned char *)p + i;
        cell *c = &cells[at - arena];
        const cell before = *c;
        const uint32_t who = c->write.who & ~BY_ATOMICS;

        if (c->write.time > began_at(at)) {
            read_byte((unsigned char *)(uintptr_t)at, c);
            if (!emu_clock_is_engine(who) && fences[who] <= c->write.time &&
                fences[me] <= c->write.time)
                explain(at, "reads by the engine", &c->write, "wrote without a proxy fence,");
        }
        for (; i + 1 < n_bytes && memcmp(&c[1], &before, sizeof before) == 0; i++, c++) c[1] = c[0];
    }
}

void emu_engine_write(void *p, size_t n_bytes, uint32_t mbarrier)
{
    if (__asan_region_is_poisoned(p, n_bytes)) __asan_report_store_n(p, n_bytes);
    settle_doubt();
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned char *at = (unsigned char *)p + i;
        cell *c = &cells[at - arena];
        const cell before = *c;
        const uint32_t began = began_at(at);

        if (before.write.time > began && !has_seen(before.write))
            explain(at, "writes by the engine", &before.write, "wrote");
        if (before.read.time > began && !has_seen(before.read))
            explain(at, "writes by the engine", &before.read, "read");
        c->write = (access_note){emu_now, mbarrier};
        for (; i + 1 < n_bytes && memcmp(&c[1], &before, sizeof before) == 0; i++, c++)
            c[1] = c[0];
    }
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
