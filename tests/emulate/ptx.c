/* ptx.c - what instructions of PTX mean: see emulate.h.
 *
 * A row for each that kernels for any device have in asm statements, by its whole text or by its
 * name. Sources: PTX ISA, the fragments of mma.m16n8k16 and m16n8k32, ldmatrix and movmatrix.
 */
#include <math.h>
#include <string.h>

#include "tests/emulate/emulate.h"

static uint16_t f16_of(double v)
{
    const _Float16 h = (_Float16)v;
    uint16_t bits;

    memcpy(&bits, &h, sizeof bits);
    return bits;
}

static float from_f16(uint32_t bits)
{
    const uint16_t low = (uint16_t)bits;
    _Float16 h;

    memcpy(&h, &low, sizeof h);
    return (float)h;
}

static float from_bf16(uint32_t bits)
{
    float v;

    bits <<= 16;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint16_t bf16_of(double v)
{
    const float f = (float)v;
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    if (isnan(f)) return 0x7fff;
    /* to nearest of the double, ties to even: what the float lost decides a tie of the float */
    if ((bits & 0xffff) == 0x8000 && (double)f != v) {
        if ((fabs(v) > fabs((double)f))) bits += 0x8000;
        return (uint16_t)(bits >> 16);
    }
    bits += 0x7fff + (bits >> 16 & 1);
    return (uint16_t)(bits >> 16);
}

static float float_in(uint64_t bits)
{
    const uint32_t low = (uint32_t)bits;
    float v;

    memcpy(&v, &low, sizeof v);
    return v;
}

/* ---- plain ones ---- */

static void nothing(const emu_operand *op) { (void)op; }

static void no_policy(const emu_operand *op) { *(uint64_t *)op[0].out = 0; }

static void bar_1(const emu_operand *op) { emu_barrier(1, (int)op[0].in); }

static void bar(const emu_operand *op) { emu_barrier((int)op[0].in, (int)op[1].in); }

static void atom_inc(const emu_operand *op)
{
    uint32_t *p = (uint32_t *)(uintptr_t)op[1].in;

    emu_atomic(p, sizeof *p);
    *(uint32_t *)op[0].out = *p;
    *p = *p >= (uint32_t)op[2].in ? 0 : *p + 1;
}

static void f16_to_f32(const emu_operand *op)
{
    *(float *)op[0].out = from_f16((uint32_t)op[1].in);
}

static void f32_to_f16(const emu_operand *op)
{
    *(uint16_t *)op[0].out = f16_of((double)float_in(op[1].in));
}

static void f32_to_bf16(const emu_operand *op)
{
    *(uint16_t *)op[0].out = bf16_of((double)float_in(op[1].in));
}

static void and_or(const emu_operand *op)
{
    *(uint32_t *)op[0].out = (uint32_t)((op[1].in & op[2].in) | op[3].in);
}

static void fma_f16x2(const emu_operand *op)
{
    uint32_t d = 0;

    for (int i = 0; i < 32; i += 16) {
        const long double a = (long double)from_f16((uint32_t)(op[1].in >> i & 0xffff));
        const long double b = (long double)from_f16((uint32_t)(op[2].in >> i & 0xffff));
        const long double c = (long double)from_f16((uint32_t)(op[3].in >> i & 0xffff));
        const _Float16 h = (_Float16)(a * b + c);
        uint16_t bits;

        memcpy(&bits, &h, sizeof bits);
        d |= (uint32_t)bits << i;
    }
    *(uint32_t *)op[0].out = d;
}

static void fma_bf16x2(const emu_operand *op)
{
    uint32_t d = 0;

    for (int i = 0; i < 32; i += 16)
        d |= (uint32_t)bf16_of((double)from_bf16((uint32_t)(op[1].in >> i & 0xffff)) *
                                   (double)from_bf16((uint32_t)(op[2].in >> i & 0xffff)) +
                               (double)from_bf16((uint32_t)(op[3].in >> i & 0xffff)))
             << i;
    *(uint32_t *)op[0].out = d;
}

/* ---- shared memory by addresses of 32 bits ---- */

static void load_words(const emu_operand *op, int n)
{
    const uint32_t *from = emu_shared_pointer((uint32_t)op[n].in);

    if ((uintptr_t)from % (4 * (unsigned)n)) emu_fault("a load of %d words is not aligned", n);
    emu_read(from, 4 * (size_t)n);
    for (int i = 0; i < n; i++) *(uint32_t *)op[i].out = from[i];
}

static void load_1(const emu_operand *op) { load_words(op, 1); }

static void load_2(const emu_operand *op) { load_words(op, 2); }

static void load_4(const emu_operand *op) { load_words(op, 4); }

static void copy_bytes(const emu_operand *op, int n_bytes, int n_there)
{
    emu_copy(emu_shared_pointer((uint32_t)op[0].in), (const void *)(uintptr_t)op[1].in, n_bytes,
             n_there);
}

static void copy_some(const emu_operand *op) { copy_bytes(op, 16, (int)op[2].in); }

static void copy_16(const emu_operand *op) { copy_bytes(op, 16, 16); }

static void copy_8(const emu_operand *op) { copy_bytes(op, 8, 8); }

static void copy_4(const emu_operand *op) { copy_bytes(op, 4, 4); }

static void copy_commit(const emu_operand *op)
{
    (void)op;
    emu_copy_commit();
}

static void copy_wait(const emu_operand *op) { emu_copy_wait((int)op[0].in); }

/* ---- matrices of a warp ---- */

static const emu_operand *of(void *const lanes[EMU_WARP], int lane) { return lanes[lane]; }

static const uint16_t *row_of(void *const lanes[EMU_WARP], int matrix, int row)
{
    return emu_shared_pointer((uint32_t)of(lanes, 8 * matrix + row)[4].in);
}

/* Lane i has elements 2 (i % 4) and the next of row i / 4 of each, or of that column. */
static void give_matrices(void *const lanes[EMU_WARP], bool is_transposed)
{
    for (int m = 0; m < 4; m++)
        for (int lane = 0; lane < EMU_WARP; lane++) {
            const int r = lane / 4, c = lane % 4 * 2;
            const uint16_t low = is_transposed ? row_of(lanes, m, c)[r] : row_of(lanes, m, r)[c];
            const uint16_t high = is_transposed ? row_of(lanes, m, c + 1)[r]
                                                : row_of(lanes, m, r)[c + 1];

            *(uint32_t *)of(lanes, lane)[m].out = low | (uint32_t)high << 16;
        }
}

static void ldmatrix_all(void *const lanes[EMU_WARP]) { give_matrices(lanes, false); }

static void ldmatrix_trans_all(void *const lanes[EMU_WARP]) { give_matrices(lanes, true); }

static void load_matrices(const emu_operand *op, const char *name, emu_finish *finish)
{
    const void *row = emu_shared_pointer((uint32_t)op[4].in);

    if ((uintptr_t)row % 16) emu_fault("a row of %s is not aligned", name);
    emu_read(row, 16);
    emu_meet(~0u, name, (void *)(uintptr_t)op, finish, false);
}

static void ldmatrix(const emu_operand *op) { load_matrices(op, "ldmatrix", ldmatrix_all); }

static void ldmatrix_trans(const emu_operand *op)
{
    load_matrices(op, "ldmatrix.trans", ldmatrix_trans_all);
}

static void movmatrix_all(void *const lanes[EMU_WARP])
{
    uint32_t t[EMU_WARP];

    for (int lane = 0; lane < EMU_WARP; lane++) {
        const int r = lane / 4, c = lane % 4 * 2;
        uint32_t two[2];

        for (int i = 0; i < 2; i++) /* element [c + i, r] of what the lanes had */
            two[i] = (uint32_t)(of(lanes, 4 * (c + i) + r / 2)[1].in >> 16 * (r % 2) & 0xffff);
        t[lane] = two[0] | two[1] << 16;
    }
    for (int lane = 0; lane < EMU_WARP; lane++) *(uint32_t *)of(lanes, lane)[0].out = t[lane];
}

static void movmatrix(const emu_operand *op)
{
    emu_meet(~0u, "movmatrix", (void *)(uintptr_t)op, movmatrix_all, false);
}

/* Operands: 4 of D, 4 of A, 2 of B. A's registers are rows g and g + 8, then the same of the
 * second half of k; `per` elements to a register, k = 8 * per. D: rows g, g + 8, columns 2t, +1. */
#define EMU_MMA_OPERANDS(type, per, decode)                                                   \
    type a[16][8 * (per)], b[8][8 * (per)];                                                   \
    for (int lane = 0; lane < EMU_WARP; lane++) {                                             \
        const emu_operand *op = of(lanes, lane);                                              \
        const int g = lane / 4, t = lane % 4 * (per);                                         \
        for (int i = 0; i < (per); i++) {                                                     \
            a[g][t + i] = decode(op[4].in, i);                                                \
            a[g + 8][t + i] = decode(op[5].in, i);                                            \
            a[g][4 * (per) + t + i] = decode(op[6].in, i);                                    \
            a[g + 8][4 * (per) + t + i] = decode(op[7].in, i);                                \
            b[g][t + i] = decode(op[8].in, i);                                                \
            b[g][4 * (per) + t + i] = decode(op[9].in, i);                                    \
        }                                                                                     \
    }

#define EMU_MMA_PRODUCTS(type, out_type, per)                                                 \
    for (int lane = 0; lane < EMU_WARP; lane++)                                               \
        for (int i = 0; i < 4; i++) {                                                         \
            const type *row = a[lane / 4 + i / 2 * 8], *col = b[lane % 4 * 2 + i % 2];        \
            out_type *d = of(lanes, lane)[i].out;                                             \
            type sum = 0;                                                                     \
            for (int k = 0; k < 8 * (per); k++) sum += row[k] * col[k];                       \
            *d = (out_type)((type)*d + sum);                                                  \
        }

#define EMU_BF16(bits, i) ((double)from_bf16((uint32_t)((bits) >> 16 * (i) & 0xffff)))
#define EMU_F16(bits, i) ((double)from_f16((uint32_t)((bits) >> 16 * (i) & 0xffff)))
#define EMU_E4M3(bits, i) ((double)emu_e4m3((unsigned)((bits) >> 8 * (i) & 0xff)))
#define EMU_S8(bits, i) ((int)(int8_t)((bits) >> 8 * (i)))

static void mma_bf16_all(void *const lanes[EMU_WARP])
{
    EMU_MMA_OPERANDS(double, 2, EMU_BF16)
    EMU_MMA_PRODUCTS(double, float, 2)
}

static void mma_f16_all(void *const lanes[EMU_WARP])
{
    EMU_MMA_OPERANDS(double, 2, EMU_F16)
    EMU_MMA_PRODUCTS(double, float, 2)
}

static void mma_s8_all(void *const lanes[EMU_WARP])
{
    EMU_MMA_OPERANDS(int, 4, EMU_S8)
    EMU_MMA_PRODUCTS(int, int, 4)
}

static void mma_e4m3_all(void *const lanes[EMU_WARP])
{
    EMU_MMA_OPERANDS(double, 4, EMU_E4M3)
    EMU_MMA_PRODUCTS(double, float, 4)
}

static void mma_e4m3(const emu_operand *op)
{
    emu_meet(~0u, "mma.e4m3", (void *)(uintptr_t)op, mma_e4m3_all, false);
}

static void mma_bf16(const emu_operand *op)
{
    emu_meet(~0u, "mma.bf16", (void *)(uintptr_t)op, mma_bf16_all, false);
}

static void mma_f16(const emu_operand *op)
{
    emu_meet(~0u, "mma.f16", (void *)(uintptr_t)op, mma_f16_all, false);
}

static void mma_s8(const emu_operand *op)
{
    emu_meet(~0u, "mma.s8", (void *)(uintptr_t)op, mma_s8_all, false);
}

/* ---- by their texts ---- */

static const struct {
    const char *text; /* whole, or a name without operands */
    emu_instruction *run;
} rows[] = {
    {"", nothing}, /* what holds a value in a register */
    {"griddepcontrol.launch_dependents;", nothing},
    {"griddepcontrol.wait;", nothing},
    {"createpolicy.fractional.L2::evict_first.b64", no_policy},
    {"createpolicy.fractional.L2::evict_last.b64", no_policy},
    {"bar.sync 1, %0;", bar_1},
    {"bar.sync %0, %1;", bar},
    {"atom.acq_rel.gpu.global.inc.u32", atom_inc},
    {"cvt.f32.f16", f16_to_f32},
    {"cvt.rn.f16.f32", f32_to_f16},
    {"cvt.rn.bf16.f32", f32_to_bf16},
    {"lop3.b32 %0, %1, %2, %3, 0xea;", and_or},
    {"fma.rn.f16x2", fma_f16x2},
    {"fma.rn.bf16x2", fma_bf16x2},
    {"ld.shared.u32", load_1},
    {"ld.shared.v2.u32", load_2},
    {"ld.shared.v4.u32", load_4},
    {"cp.async.cg.shared.global [%0], [%1], 16, %2;", copy_some},
    {"cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;", copy_some},
    {"cp.async.cg.shared.global [%0], [%1], 16;", copy_16},
    {"cp.async.cg.shared.global.L2::128B [%0], [%1], 16;", copy_16},
    {"cp.async.ca.shared.global [%0], [%1], 8;", copy_8},
    {"cp.async.ca.shared.global [%0], [%1], 4;", copy_4},
    {"cp.async.commit_group;", copy_commit},
    {"cp.async.wait_group %0;", copy_wait},
    {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", ldmatrix},
    {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", ldmatrix_trans},
    {"movmatrix.sync.aligned.m8n8.trans.b16", movmatrix},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", mma_bf16},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", mma_f16},
    {"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", mma_s8},
    {"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", mma_e4m3},
};

const char *emu_text;

emu_instruction *emu_find(const char *text)
{
    const size_t n = strcspn(text, " ");

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].text, text) == 0 ||
            (n && strlen(rows[i].text) == n && strncmp(rows[i].text, text, n) == 0))
            return rows[i].run;
    if (emu_find_hopper(text)) return emu_find_hopper(text);
    emu_fault("not emulated: %s", text);
}
