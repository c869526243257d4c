/* engine.c - the copy engine of Hopper: pieces and boxes that it brings to shared memory, and boxes
 * that it takes from there: see emulate.h. Source: PTX ISA, cp.async.bulk and its tensor form;
 * CUDA driver API, cuTensorMapEncodeTiled.
 *
 * A load is made when nobody else can go on, that is as late as it may be; with an odd
 * SW_EMULATE_SEED at once. What it will write belongs to the engine from the moment it is asked
 * for. A store reads when its thread waits for that; what it then finds must be what was there
 * when it was asked for.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulate/emulate.h"
#include "tests/emulate/hopper.h"

#define TRANSFERS_MAX 4096
#define DIMS_MAX 4
#define MAP_MAGIC 0x70616d75u

/* In the 128 bytes of a CUtensorMap. Strides in bytes; the first is that of an element. */
typedef struct tensor_map {
    uint32_t magic, rank, elem_bytes, is_swizzled;
    const unsigned char *base;
    uint64_t dims[DIMS_MAX], strides[DIMS_MAX];
    uint32_t box[DIMS_MAX];
} tensor_map;
_Static_assert(sizeof(tensor_map) <= sizeof(CUtensorMap), "a map of 128 bytes");

typedef struct transfer {
    struct emu_mbarrier *mbarrier; /* of a load */
    int block, thread;             /* of a load: whose memory; of a store: who asked for it */
    unsigned char *shared;
    unsigned char *global; /* without a map */
    tensor_map map;
    int32_t at[DIMS_MAX];
    uint32_t n_bytes, group;
    unsigned char *copy; /* of what a store found when it was asked for */
} transfer;

static transfer loads[TRANSFERS_MAX], stores[TRANSFERS_MAX];
static int n_loads, n_stores;
static uint32_t groups[EMU_BLOCKS_MAX][EMU_THREADS_MAX]; /* that are not committed */

/* ---- maps ---- */

CUresult emu_encode(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *base,
                    const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                    const cuuint32_t *steps, CUtensorMapInterleave interleave,
                    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                    CUtensorMapFloatOOBfill fill);

static uint32_t bytes_of(CUtensorMapDataType type)
{
    static const struct {
        CUtensorMapDataType type;
        uint32_t n_bytes;
    } types[] = {
        {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1},  {CU_TENSOR_MAP_DATA_TYPE_UINT16, 2},
        {CU_TENSOR_MAP_DATA_TYPE_UINT32, 4}, {CU_TENSOR_MAP_DATA_TYPE_UINT64, 8},
        {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2},
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type) return types[i].n_bytes;
    return 0;
}

/* With the limits that the driver has. */
CUresult emu_encode(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *base,
                    const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                    const cuuint32_t *steps, CUtensorMapInterleave interleave,
                    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                    CUtensorMapFloatOOBfill fill)
{
    tensor_map m = {.magic = MAP_MAGIC, .rank = rank, .elem_bytes = bytes_of(type), .base = base};
    bool is_good = rank >= 1 && rank <= DIMS_MAX && m.elem_bytes && (uintptr_t)base % 16 == 0 &&
                   (uintptr_t)out % 64 == 0 && interleave == CU_TENSOR_MAP_INTERLEAVE_NONE;

    (void)promotion, (void)fill;
    m.is_swizzled = swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
    for (uint32_t i = 0; i < rank && is_good; i++) {
        m.dims[i] = dims[i];
        m.box[i] = box[i];
        m.strides[i] = i ? strides[i - 1] : m.elem_bytes;
        is_good = dims[i] && dims[i] <= 1ull << 32 && box[i] && box[i] <= 256 && steps[i] == 1 &&
                  (!i || (m.strides[i] % 16 == 0 && m.strides[i] < 1ull << 40));
    }
    if (!is_good || box[0] * m.elem_bytes % 16 ||
        (m.is_swizzled && box[0] * m.elem_bytes > 128))
        return CUDA_ERROR_INVALID_VALUE;
    memset(out, 0, sizeof *out);
    memcpy(out, &m, sizeof m);
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found)
{
    const bool is_there = strcmp(name, "cuTensorMapEncodeTiled") == 0;
    CUresult (*encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                       const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                       CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                       CUtensorMapFloatOOBfill) = emu_encode;

    (void)version, (void)flags;
    if (is_there) memcpy(out, &encode, sizeof *out);
    *found = is_there ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

static tensor_map map_at(uint64_t address, uint32_t rank)
{
    tensor_map m;

    if (address % 64) emu_fault("a tensor map that is not aligned");
    memcpy(&m, (const void *)(uintptr_t)address, sizeof m);
    if (m.magic != MAP_MAGIC || m.rank != rank) emu_fault("no tensor map of %u dimensions", rank);
    return m;
}

static uint32_t box_bytes(const tensor_map *m)
{
    uint32_t n = m->elem_bytes;

    for (uint32_t i = 0; i < m->rank; i++) n *= m->box[i];
    return n;
}

/* ---- how boxes are moved, a row of the first dimension at a time ---- */

/* Chunks of 16 bytes trade places inside of 128 bytes as bits 7 to 9 of the address say. */
unsigned char *emu_swizzled(unsigned char *p)
{
    return (unsigned char *)((uintptr_t)p ^ ((uintptr_t)p >> 7 & 7) << 4);
}

/* Where row `i` of the box begins in global memory; false: outside. Of it, elements from *lo to
 * *hi are inside. */
static bool row_at(const transfer *t, uint32_t i, unsigned char **from, int64_t *lo, int64_t *hi)
{
    const tensor_map *m = &t->map;
    int64_t at = (int64_t)t->at[0] * (int64_t)m->elem_bytes;

    for (uint32_t d = 1; d < m->rank; d++) {
        const int64_t x = (int64_t)t->at[d] + i % m->box[d];

        i /= m->box[d];
        if (x < 0 || x >= (int64_t)m->dims[d]) return false;
        at += x * (int64_t)m->strides[d];
    }
    *lo = t->at[0] < 0 ? -(int64_t)t->at[0] : 0;
    *hi = (int64_t)m->dims[0] - t->at[0];
    if (*hi > m->box[0]) *hi = m->box[0];
    *from = (unsigned char *)(uintptr_t)m->base + at;
    return *lo < *hi;
}

static void load_row(const transfer *t, uint32_t i)
{
    const tensor_map *m = &t->map;
    const uint32_t n = m->box[0] * m->elem_bytes, e = m->elem_bytes;
    unsigned char row[2048], *from, *to = t->shared + (size_t)i * n;
    int64_t lo, hi;

    memset(row, 0, n);
    if (row_at(t, i, &from, &lo, &hi)) {
        emu_read(from + lo * e, (size_t)(hi - lo) * e);
        memcpy(row + lo * e, from + lo * e, (size_t)(hi - lo) * e);
    }
    for (uint32_t j = 0; j < n; j += 16)
        memcpy(m->is_swizzled ? emu_swizzled(to + j) : to + j, row + j, 16);
}

static void store_row(const transfer *t, uint32_t i)
{
    const tensor_map *m = &t->map;
    const uint32_t n = m->box[0] * m->elem_bytes, e = m->elem_bytes;
    unsigned char row[2048], *to;
    int64_t lo, hi;

    for (uint32_t j = 0; j < n; j += 16) {
        unsigned char *from = t->shared + (size_t)i * n + j;

        from = m->is_swizzled ? emu_swizzled(from) : from;
        memcpy(row + j, t->copy + (from - t->shared), 16);
    }
    if (!row_at(t, i, &to, &lo, &hi)) return;
    emu_write(to + lo * e, (size_t)(hi - lo) * e);
    memcpy(to + lo * e, row + lo * e, (size_t)(hi - lo) * e);
}

static void move_box(const transfer *t, void (*row)(const transfer *, uint32_t))
{
    uint32_t n_rows = 1;

    for (uint32_t d = 1; d < t->map.rank; d++) n_rows *= t->map.box[d];
    for (uint32_t i = 0; i < n_rows; i++) row(t, i);
}

/* ---- loads ---- */

static void make_load(int i)
{
    const transfer t = loads[i];

    loads[i] = loads[--n_loads];
    if (t.map.rank) move_box(&t, load_row);
    else {
        emu_read(t.global, t.n_bytes);
        memcpy(t.shared, t.global, t.n_bytes);
    }
    emu_mbarrier_brought(t.mbarrier, t.n_bytes);
}

bool emu_engine_step(void)
{
    for (int i = 0; i < n_loads; i++)
        if (emu_is_awaited(loads[i].mbarrier)) {
            make_load(i);
            return true;
        }
    if (n_loads == 0) return false;
    make_load(0);
    return true;
}

/* To `address` in the block of the cluster that has `rank`, or -1: to where the address says. */
static void ask(transfer t, uint32_t address, uint32_t mbarrier, int rank)
{
    if (n_loads == TRANSFERS_MAX) emu_fault("more than %d loads under way", TRANSFERS_MAX);
    if (rank >= 0) {
        address = emu_shared_map(address, (uint32_t)rank);
        mbarrier = emu_shared_map(mbarrier, (uint32_t)rank);
    }
    t.shared = emu_shared_pointer(address);
    t.mbarrier = emu_mbarrier_at(mbarrier);
    if ((uintptr_t)t.shared % (t.map.rank ? 128 : 16) || t.n_bytes % 16 || t.n_bytes == 0 ||
        (uintptr_t)t.global % 16)
        emu_fault("a load of %u bytes to or from an address that is not aligned", t.n_bytes);
    t.block = rank >= 0 ? emu_block_of_rank((uint32_t)rank) : emu_block;
    emu_engine_write(t.shared, t.n_bytes, emu_mbarrier_clock(t.mbarrier));
    loads[n_loads++] = t;
    if (emu_seed() % 2) make_load(n_loads - 1);
}

void emu_bulk_load(const emu_operand *op)
{
    transfer t = {.global = (unsigned char *)(uintptr_t)op[1].in, .n_bytes = (uint32_t)op[2].in};

    if (emu_is_lane_elected()) ask(t, (uint32_t)op[0].in, (uint32_t)op[3].in, -1);
}

void emu_bulk_load_many(const emu_operand *op)
{
    transfer t = {.global = (unsigned char *)(uintptr_t)op[1].in, .n_bytes = (uint32_t)op[2].in};

    if (!emu_is_lane_elected()) return;
    for (int rank = 0; rank < 16; rank++)
        if (op[4].in >> rank & 1) ask(t, (uint32_t)op[0].in, (uint32_t)op[3].in, rank);
}

/* What a thread stores in another block's memory, whose mbarrier is told of it: as a load that is
 * made at once. */
static void send(const emu_operand *op, int n)
{
    const uint32_t address = (uint32_t)op[0].in;
    struct emu_mbarrier *b = emu_mbarrier_at((uint32_t)op[n + 1].in);
    uint32_t *to = emu_shared_pointer(address);

    if ((uintptr_t)to % (4 * (unsigned)n)) emu_fault("%d words sent are not aligned", n);
    emu_engine_write(to, 4 * (size_t)n, emu_mbarrier_clock(b));
    for (int i = 0; i < n; i++) to[i] = (uint32_t)op[1 + i].in;
    emu_mbarrier_brought(b, 4 * (uint32_t)n);
}

void emu_send_2(const emu_operand *op) { send(op, 2); }

void emu_send_4(const emu_operand *op) { send(op, 4); }

static transfer box_of(uint64_t map, const emu_operand *at, uint32_t rank)
{
    transfer t = {.map = map_at(map, rank)};

    t.n_bytes = box_bytes(&t.map);
    for (uint32_t i = 0; i < rank; i++) t.at[i] = (int32_t)at[i].in;
    return t;
}

static void load_box(const emu_operand *op, uint32_t rank)
{
    if (!emu_is_lane_elected()) return;
    ask(box_of(op[1].in, op + 2, rank), (uint32_t)op[0].in, (uint32_t)op[2 + rank].in, -1);
}

void emu_tensor_load_2d(const emu_operand *op) { load_box(op, 2); }

void emu_tensor_load_3d(const emu_operand *op) { load_box(op, 3); }

void emu_tensor_load_4d(const emu_operand *op) { load_box(op, 4); }

/* A box to each block of the cluster that the mask has. */
static void load_box_many(const emu_operand *op, uint32_t rank)
{
    const uint64_t mask = op[3 + rank].in;

    if (!emu_is_lane_elected()) return;
    for (int block = 0; block < 16; block++)
        if (mask >> block & 1)
            ask(box_of(op[1].in, op + 2, rank), (uint32_t)op[0].in, (uint32_t)op[2 + rank].in,
                block);
}

void emu_tensor_load_many(const emu_operand *op) { load_box_many(op, 2); }

void emu_tensor_load_many_4d(const emu_operand *op) { load_box_many(op, 4); }

/* ---- stores ---- */

static void store_box(const emu_operand *op, uint32_t rank)
{
    transfer t = box_of(op[0].in, op + 1, rank);

    if (n_stores == TRANSFERS_MAX) emu_fault("more than %d stores under way", TRANSFERS_MAX);
    t.shared = emu_shared_pointer((uint32_t)op[1 + rank].in);
    if ((uintptr_t)t.shared % 128) emu_fault("a store from an address that is not aligned");
    emu_async_read(t.shared, t.n_bytes);
    t.copy = malloc(t.n_bytes);
    if (!t.copy) emu_fault("no memory for a store");
    memcpy(t.copy, t.shared, t.n_bytes);
    t.block = emu_block;
    t.thread = emu_id;
    t.group = groups[emu_block][emu_id];
    stores[n_stores++] = t;
}

/* Its text has the end of the group too. */
void emu_tensor_store_2d(const emu_operand *op)
{
    store_box(op, 2);
    if (strstr(emu_text, "commit_group")) emu_bulk_commit(NULL);
}

void emu_tensor_store_4d(const emu_operand *op) { store_box(op, 4); }

void emu_bulk_commit(const emu_operand *op)
{
    (void)op;
    groups[emu_block][emu_id]++;
}

static void end_stores(int n_left)
{
    int n = 0;

    for (int i = 0; i < n_stores; i++) {
        transfer *t = &stores[i];

        if (t->block != emu_block || t->thread != emu_id ||
            (int32_t)(groups[emu_block][emu_id] - t->group) <= n_left) {
            stores[n++] = *t;
            continue;
        }
        if (memcmp(t->copy, t->shared, t->n_bytes))
            emu_fault("shared memory was written while the engine was to store it");
        move_box(t, store_row);
        free(t->copy);
    }
    n_stores = n;
}

/* Of .read too, behind which nobody here can tell whether the bytes are where they belong. */
void emu_bulk_wait(const emu_operand *op)
{
    end_stores(strstr(emu_text, "%0") ? (int)op[0].in : 0);
}

/* ---- ends ---- */

void emu_thread_ends(void)
{
    for (int i = 0; i < n_stores; i++)
        if (stores[i].block == emu_block && stores[i].thread == emu_id)
            emu_fault("a thread ends with stores of the engine under way");
}

void emu_engine_block_ends(void)
{
    for (int i = 0; i < n_loads; i++)
        if (loads[i].block == emu_block) emu_fault("a block ends with loads under way to it");
}
