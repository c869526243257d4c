/* wgmma.c - products of warpgroups: see emulate.h. Source: PTX ISA, wgmma.mma_async, its fragments,
 * canonical layouts and matrix descriptors.
 *
 * A product is computed when its warp waits for it: A in registers as it was when it was asked for,
 * what lies in shared memory as it is by then. Until then its accumulators hold NaNs, so that who
 * reads them early has those. A warp's 16 rows are computed alone, for they depend on no other's.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulate/emulate.h"
#include "tests/emulate/hopper.h"

#define PRODUCTS_MAX 64 /* of a thread, under way */
#define SUMS_MAX 128    /* of a lane: 256 columns */
#define UNDER_WAY 0x7fffdeadu
#define K_MAX 32

typedef float decoder(const unsigned char *at);

/* What the text says. */
typedef struct form {
    const char *text;
    int n_sums, k, elem_bytes;
    bool is_integer, a_is_shared, b_is_across;
    decoder *decode;
} form;

typedef struct product {
    form form;
    uint32_t *d;            /* the lane's sums */
    uint32_t before[SUMS_MAX];
    bool is_first;          /* of those under way that add to d: `before` has what was there */
    bool accumulates;
    uint32_t a[4], group;
    uint64_t a_at, b_at;    /* descriptors */
} product;

typedef struct queue {
    product *products;
    int n;
    uint32_t group;
} queue;

static queue queues[EMU_BLOCKS_MAX][EMU_THREADS_MAX];

/* ---- the text ---- */

static float bf16_at(const unsigned char *at)
{
    uint16_t low;
    uint32_t bits;
    float v;

    memcpy(&low, at, 2);
    bits = (uint32_t)low << 16;
    memcpy(&v, &bits, 4);
    return v;
}

static float f16_at(const unsigned char *at)
{
    _Float16 h;

    memcpy(&h, at, 2);
    return (float)h;
}

static float s8_at(const unsigned char *at) { return (float)(int8_t)*at; }

float emu_e4m3(unsigned bits)
{
    const int e = (int)(bits >> 3 & 15), m = (int)(bits & 7);
    const float v = (float)(e ? 8 + m : m) / 8;
    const int shift = e ? e - 7 : -6;
    const float scaled = shift >= 0 ? v * (float)(1 << shift) : v / (float)(1 << -shift);

    if ((bits & 127) == 127) return NAN;
    return bits & 128 ? -scaled : scaled;
}

static float e4m3_at(const unsigned char *at) { return emu_e4m3(*at); }

static const struct {
    const char *types;
    int elem_bytes;
    bool is_integer;
    decoder *decode;
} types[] = {
    {".f32.bf16.bf16 ", 2, false, bf16_at},
    {".f32.f16.f16 ", 2, false, f16_at},
    {".f32.e4m3.e4m3 ", 1, false, e4m3_at},
    {".s32.s8.s8 ", 1, true, s8_at},
};

/* "wgmma.mma_async.sync.aligned.m64n<N>k<K><types> {D}, {A} or A, B, p[, 1, 1[, across...]];" */
static form form_of(const char *text)
{
    static form latest;
    const char *at = strstr(text, ".m64n"), *b;
    form f = {.text = text};
    int n = 0;

    if (latest.text == text) return latest;
    if (!at || sscanf(at, ".m64n%dk%d", &n, &f.k) != 2) emu_fault("not emulated: %s", text);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strstr(at, types[i].types)) {
            f.elem_bytes = types[i].elem_bytes;
            f.is_integer = types[i].is_integer;
            f.decode = types[i].decode;
        }
    f.n_sums = n / 2;
    b = strchr(at, '}');
    f.a_is_shared = b && !strchr(b, '{');
    f.b_is_across = strstr(at, "p, 1, 1, 1;") != NULL;
    if (!f.decode || !b || f.k * f.elem_bytes != 32 || n % 8 || n > 256 ||
        (f.a_is_shared && !strstr(at, f.is_integer        ? "p;"
                                      : f.elem_bytes == 1 ? "p, 1, 1;"
                                                          : "p, 1, 1, 0, 0;")))
        emu_fault("not emulated: %s", text);
    return latest = f;
}

/* ---- asking ---- */

static queue *mine(void) { return &queues[emu_block][emu_id]; }

static bool adds_to(const queue *q, int n, const uint32_t *d)
{
    for (int i = 0; i < n; i++)
        if (q->products[i].d == d) return true;
    return false;
}

static void hide(product *p)
{
    memcpy(p->before, p->d, (size_t)p->form.n_sums * 4);
    for (int i = 0; i < p->form.n_sums; i++) p->d[i] = UNDER_WAY;
    p->is_first = true;
}

void emu_wgmma(const emu_operand *op)
{
    queue *q = mine();
    const form f = form_of(emu_text);
    product *p;

    if (!q->products) q->products = calloc(PRODUCTS_MAX, sizeof *q->products);
    if (!q->products || q->n == PRODUCTS_MAX) emu_fault("more than %d products under way", q->n);
    p = &q->products[q->n];
    *p = (product){.form = f, .d = op[0].out, .group = q->group};
    for (int i = 1; i < f.n_sums; i++)
        if (op[i].out != (void *)(p->d + i)) emu_fault("sums of a product that are not in a row");
    op += f.n_sums;
    if (f.a_is_shared) p->a_at = op++->in;
    else
        for (int i = 0; i < 4; i++) p->a[i] = (uint32_t)op++->in;
    p->b_at = op[0].in;
    p->accumulates = op[1].in != 0;
    if (!adds_to(q, q->n, p->d)) hide(p);
    q->n++;
}

void emu_wgmma_commit(const emu_operand *op)
{
    (void)op;
    mine()->group++;
}

/* ---- computing ---- */

/* Row `i`, byte `at` (0 or 16) of an operand whose rows are 32 bytes of k, 8 to an atom. */
static const unsigned char *along_32(uint64_t desc, int i, int at)
{
    const uint32_t begin = (uint32_t)(desc & 0x3fff) << 4;
    const uint32_t stride = (uint32_t)(desc >> 32 & 0x3fff) << 4;

    return emu_shared_pointer(begin + (uint32_t)(i / 8) * stride + (uint32_t)(i % 8 * 32) +
                              (uint32_t)(at ^ i % 8 / 4 * 16));
}

/* Row `i`, byte `at` of an operand whose rows are 128 bytes of k, 8 to an atom. */
static const unsigned char *along(uint64_t desc, int i, int at)
{
    const uint32_t begin = (uint32_t)(desc & 0x3fff) << 4;
    const uint32_t stride = (uint32_t)(desc >> 32 & 0x3fff) << 4;
    unsigned char *p = emu_shared_pointer(begin + (uint32_t)(i / 8) * stride +
                                          (uint32_t)(i % 8 * 128 + at));

    return emu_swizzled(p);
}

/* Output i of input k of an operand whose rows are 64 outputs of one input. */
static const unsigned char *across(uint64_t desc, int i, int k)
{
    const uint32_t begin = (uint32_t)(desc & 0x3fff) << 4;
    const uint32_t next = (uint32_t)(desc >> 16 & 0x3fff) << 4;
    const uint32_t stride = (uint32_t)(desc >> 32 & 0x3fff) << 4;
    unsigned char *p = emu_shared_pointer(begin + (uint32_t)(i / 64) * next +
                                          (uint32_t)(k / 8) * stride +
                                          (uint32_t)(k % 8 * 128 + i % 64 * 2));

    return emu_swizzled(p);
}

static bool has_32(uint64_t desc) { return desc >> 62 == 3; }

static void check_descriptor(uint64_t desc)
{
    if (has_32(desc) && (desc & 0xf)) emu_fault("an operand that begins inside of an atom");
    if (has_32(desc)) return;
    if (desc >> 62 != 1) emu_fault("an operand without the 128-byte swizzle");
    if (desc >> 49 & 7) emu_fault("an operand with a base offset");
    if ((desc & 0x3fff) << 4 & 0x380) emu_fault("an operand that begins inside of an atom");
}

/* Rows [first, first + n) of an operand in shared memory as numbers [n][K_MAX]. */
static void fetch_rows(const form *f, uint64_t desc, int first, int n, float (*to)[K_MAX])
{
    for (int i = 0; i < n; i++)
        for (int half = 0; half < 32; half += 16) {
            const unsigned char *p = has_32(desc) ? along_32(desc, first + i, half)
                                                  : along(desc, first + i, half);

            emu_async_read(p, 16);
            for (int j = 0; j < 16 / f->elem_bytes; j++)
                to[i][half / f->elem_bytes + j] = f->decode(p + j * f->elem_bytes);
        }
}

static void fetch_across(const form *f, uint64_t desc, int n, float (*to)[K_MAX])
{
    for (int k = 0; k < f->k; k++)
        for (int i = 0; i < n; i += 8) {
            const unsigned char *p = across(desc, i, k);

            emu_async_read(p, 16);
            for (int j = 0; j < 8; j++) to[i + j][k] = f->decode(p + 2 * j);
        }
}

/* Of lane l: rows l / 4 and 8 more, 4 bytes from 4 * (l % 4) on, then the same 16 bytes on. */
static void fetch_registers(const form *f, product *const lanes[EMU_WARP], float (*to)[K_MAX])
{
    for (int lane = 0; lane < EMU_WARP; lane++)
        for (int i = 0; i < 4; i++) {
            const unsigned char *bytes = (const unsigned char *)&lanes[lane]->a[i];

            for (int j = 0; j < 4 / f->elem_bytes; j++)
                to[lane / 4 + i % 2 * 8][(i / 2 * 16 + lane % 4 * 4) / f->elem_bytes + j] =
                    f->decode(bytes + j * f->elem_bytes);
        }
}

static void add(const form *f, uint32_t *sum, bool accumulates, double v)
{
    float before;
    int32_t integer;

    if (f->is_integer) {
        integer = (int32_t)v + (accumulates ? (int32_t)*sum : 0);
        memcpy(sum, &integer, 4);
        return;
    }
    memcpy(&before, sum, 4);
    before = (float)(v + (accumulates ? (double)before : 0));
    memcpy(sum, &before, 4);
}

/* Lane l has of each 8 columns 2 (l % 4) and the next, of row l / 4, then of 8 rows on. */
static void multiply(product *const lanes[EMU_WARP], int warp)
{
    static float a[16][K_MAX], b[256][K_MAX];
    const product *p = lanes[0];
    const form *f = &p->form;

    check_descriptor(p->b_at);
    if (f->a_is_shared) {
        check_descriptor(p->a_at);
        fetch_rows(f, p->a_at, warp % 4 * 16, 16, a);
    } else fetch_registers(f, lanes, a);
    if (f->b_is_across) fetch_across(f, p->b_at, 2 * f->n_sums, b);
    else fetch_rows(f, p->b_at, 0, 2 * f->n_sums, b);
    for (int lane = 0; lane < EMU_WARP; lane++)
        for (int i = 0; i < f->n_sums; i++) {
            const float *row = a[lane / 4 + i / 2 % 2 * 8];
            const float *col = b[i / 4 * 8 + lane % 4 * 2 + i % 2];
            double sum = 0;

            for (int k = 0; k < f->k; k++) sum += (double)(row[k] * col[k]);
            add(f, &lanes[lane]->d[i], p->accumulates, sum);
        }
}

static void show(product *p)
{
    for (int i = 0; i < p->form.n_sums; i++)
        if (p->d[i] != UNDER_WAY)
            emu_fault("sum %d was written while a product was to add to it", i);
    memcpy(p->d, p->before, (size_t)p->form.n_sums * 4);
    p->is_first = false;
}

typedef struct wait {
    queue *queue;
    int n_left; /* groups that may go on */
} wait;

static const wait *of(void *const lanes[EMU_WARP], int lane) { return lanes[lane]; }

/* The first product of each lane, then what comes behind it goes on from its sums. */
static void end_first(void *const lanes[EMU_WARP])
{
    product *first[EMU_WARP];

    for (int lane = 0; lane < EMU_WARP; lane++) {
        queue *q = of(lanes, lane)->queue;

        first[lane] = &q->products[0];
        if (q->n == 0 || first[lane]->form.text != first[0]->form.text ||
            first[lane]->b_at != first[0]->b_at || first[lane]->a_at != first[0]->a_at ||
            first[lane]->accumulates != first[0]->accumulates ||
            first[lane]->group != first[0]->group)
            emu_fault("lane %d of a warp has another product than lane 0", lane);
        if (first[lane]->is_first) show(first[lane]);
    }
    multiply(first, emu_id / EMU_WARP);
    for (int lane = 0; lane < EMU_WARP; lane++) {
        queue *q = of(lanes, lane)->queue;
        const uint32_t *d = first[lane]->d;

        memmove(q->products, q->products + 1, (size_t)--q->n * sizeof *q->products);
        for (int i = 0; i < q->n; i++)
            if (q->products[i].d == d) {
                hide(&q->products[i]);
                break;
            }
    }
}

static void end_groups(void *const lanes[EMU_WARP])
{
    const queue *q = of(lanes, 0)->queue;
    const int n_left = of(lanes, 0)->n_left;

    while (q->n && (int32_t)(q->group - q->products[0].group) > n_left) end_first(lanes);
}

void emu_wgmma_wait(const emu_operand *op)
{
    wait w = {mine(), (int)op[0].in};

    emu_meet(~0u, "wgmma.wait_group", &w, end_groups, false);
}
