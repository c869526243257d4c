/* hopper.c - the rows of instructions that only kernels of Hopper have: see emulate.h, ptx.c. An
 * asm statement of several lines is known by the name in it. Source: PTX ISA.
 */
#include <math.h>
#include <string.h>

#include "tests/emulate/emulate.h"
#include "tests/emulate/hopper.h"

static void nothing(const emu_operand *op) { (void)op; }

/* ---- who does it ---- */

static const emu_operand *of(void *const lanes[EMU_WARP], int lane) { return lanes[lane]; }

bool emu_is_lane_elected(void)
{
    static const char *latest;
    static bool elects;

    if (latest != emu_text) {
        latest = emu_text;
        elects = strstr(emu_text, "elect.sync") != NULL;
    }
    if (!elects) return true;
    emu_meet(~0u, "elect.sync", NULL, NULL, false);
    latest = NULL; /* others ran meanwhile */
    return emu_id % EMU_WARP == 0;
}

/* ---- clusters ---- */

static void rank(const emu_operand *op) { *(uint32_t *)op[0].out = emu_cluster_rank(); }

static void size(const emu_operand *op) { *(uint32_t *)op[0].out = emu_cluster_size(); }

static void cluster_id(const emu_operand *op)
{
    *(uint32_t *)op[0].out = blockIdx.x / emu_cluster_size();
}

static void map(const emu_operand *op)
{
    *(uint32_t *)op[0].out = emu_shared_map((uint32_t)op[1].in, (uint32_t)op[2].in);
}

static void cluster_sync(const emu_operand *op)
{
    (void)op;
    emu_cluster_barrier(true);
}

static void cluster_meet(const emu_operand *op)
{
    (void)op;
    emu_cluster_barrier(false);
}

/* ---- barriers, fences, order in global memory ---- */

static void bar_arrive(const emu_operand *op)
{
    emu_barrier_arrive((int)op[0].in, (int)op[1].in);
}

static void proxy_fence(const emu_operand *op)
{
    (void)op;
    emu_proxy_fence();
}

static void load_acquire(const emu_operand *op)
{
    const uint32_t *from = (const uint32_t *)(uintptr_t)op[1].in;

    emu_yield();
    emu_read(from, 4);
    *(uint32_t *)op[0].out = *from;
}

static void store_release(const emu_operand *op)
{
    emu_write((void *)(uintptr_t)op[0].in, 4);
    *(uint32_t *)(uintptr_t)op[0].in = 1;
}

static void add_release(const emu_operand *op)
{
    emu_write((void *)(uintptr_t)op[0].in, 4);
    *(uint32_t *)(uintptr_t)op[0].in += (uint32_t)op[1].in;
}

/* ---- shared memory ---- */

static void load_half(const emu_operand *op, size_t n_bytes)
{
    const uint16_t *from = emu_shared_pointer((uint32_t)op[1].in);

    if ((uintptr_t)from % 2) emu_fault("a load that is not aligned");
    emu_read(from, 2);
    memset(op[0].out, 0, n_bytes);
    memcpy(op[0].out, from, 2);
}

static void load_u16(const emu_operand *op) { load_half(op, 2); }

static void load_u16_wide(const emu_operand *op) { load_half(op, 4); }

static void load_remote(const emu_operand *op, int n)
{
    const uint32_t *from = emu_shared_pointer((uint32_t)op[n].in);

    if ((uintptr_t)from % (4 * (unsigned)n)) emu_fault("a load of %d words is not aligned", n);
    emu_read(from, 4 * (size_t)n);
    for (int i = 0; i < n; i++) *(uint32_t *)op[i].out = from[i];
}

static void load_remote_2(const emu_operand *op) { load_remote(op, 2); }

static void load_remote_4(const emu_operand *op) { load_remote(op, 4); }

static void store_1(const emu_operand *op)
{
    uint32_t *to = emu_shared_pointer((uint32_t)op[0].in);

    if ((uintptr_t)to % 4) emu_fault("a store of a word is not aligned");
    emu_write(to, 4);
    *to = (uint32_t)op[1].in;
}

static void store_words(const emu_operand *op, int step)
{
    uint32_t *to = emu_shared_pointer((uint32_t)op[0].in);

    if ((uintptr_t)to % 16) emu_fault("a store of 4 words is not aligned");
    emu_write(to, 16);
    for (int i = 0; i < 4; i++) to[i] = (uint32_t)op[1 + i * step].in;
}

static void store_4(const emu_operand *op) { store_words(op, 1); }

static void store_same(const emu_operand *op) { store_words(op, 0); }

/* Lane l holds elements [l / 4][2 (l % 4)], +1 of each matrix, or of its columns; lane 8 m + r has
 * the address of row r of matrix m, which it writes. */
static void put_matrices(void *const lanes[EMU_WARP], bool is_transposed)
{
    for (int lane = 0; lane < EMU_WARP; lane++)
        for (int m = 0; m < 4; m++)
            for (int i = 0; i < 2; i++) {
                const int r = lane / 4, c = lane % 4 * 2 + i;
                const int to_row = is_transposed ? c : r, to_col = is_transposed ? r : c;
                uint16_t *row =
                    emu_shared_pointer((uint32_t)of(lanes, 8 * m + to_row)[0].in);

                row[to_col] = (uint16_t)(of(lanes, lane)[1 + m].in >> 16 * i);
            }
}

static void stmatrix_all(void *const lanes[EMU_WARP]) { put_matrices(lanes, false); }

static void stmatrix_trans_all(void *const lanes[EMU_WARP]) { put_matrices(lanes, true); }

static void store_matrices(const emu_operand *op, emu_finish *finish)
{
    void *row = emu_shared_pointer((uint32_t)op[0].in);

    if ((uintptr_t)row % 16) emu_fault("a row of stmatrix is not aligned");
    emu_write(row, 16);
    emu_meet(~0u, "stmatrix", (void *)(uintptr_t)op, finish, false);
}

static void stmatrix(const emu_operand *op) { store_matrices(op, stmatrix_all); }

static void stmatrix_trans(const emu_operand *op) { store_matrices(op, stmatrix_trans_all); }

/* ---- arithmetic ---- */

static void lop3(const emu_operand *op)
{
    const char *at = strstr(emu_text, "0x");
    const unsigned table = (unsigned)((at[2] <= '9' ? at[2] - '0' : at[2] - 'a' + 10) << 4 |
                                      (at[3] <= '9' ? at[3] - '0' : at[3] - 'a' + 10));
    uint32_t d = 0;

    for (int i = 0; i < 32; i++) {
        const unsigned row = (unsigned)((op[1].in >> i & 1) << 2 | (op[2].in >> i & 1) << 1 |
                                        (op[3].in >> i & 1));

        d |= (table >> row & 1u) << i;
    }
    *(uint32_t *)op[0].out = d;
}

static void xor_in(const emu_operand *op) { *(uint32_t *)op[0].out ^= (uint32_t)op[1].in; }

static void zero(const emu_operand *op) { *(uint32_t *)op[0].out = 0; }

static float float_of(uint64_t bits)
{
    const uint32_t low = (uint32_t)bits;
    float v;

    memcpy(&v, &low, sizeof v);
    return v;
}

static void ex2(const emu_operand *op)
{
    const float v = exp2f(float_of(op[1].in));

    *(float *)op[0].out = v < 0x1p-126f ? 0 : v;
}

static float bf16(uint64_t bits) { return float_of(bits << 16); }

static uint32_t round_bf16(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    if (isnan(v)) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static float f16(uint64_t bits)
{
    const uint16_t low = (uint16_t)bits;
    _Float16 h;

    memcpy(&h, &low, sizeof h);
    return (float)h;
}

static uint32_t round_f16(float v)
{
    const _Float16 h = (_Float16)v;
    uint16_t bits;

    memcpy(&bits, &h, sizeof bits);
    return bits;
}

/* Both halves; the sum or product of two 16-bit floats is exact in a float or rounds as it. */
#define EMU_HALVES(name, from, to, how)                                                \
    static void name(const emu_operand *op)                                            \
    {                                                                                  \
        uint32_t d = 0;                                                                \
                                                                                       \
        for (int i = 0; i < 32; i += 16) {                                             \
            const float a = from(op[1].in >> i & 0xffff);                              \
            const float b = from(op[2].in >> i & 0xffff);                              \
                                                                                       \
            d |= to(a how b) << i;                                                     \
        }                                                                              \
        *(uint32_t *)op[0].out = d;                                                    \
    }
EMU_HALVES(sub_bf16, bf16, round_bf16, -)
EMU_HALVES(sub_f16, f16, round_f16, -)
EMU_HALVES(mul_bf16, bf16, round_bf16, *)
EMU_HALVES(mul_f16, f16, round_f16, *)

static void pair_bf16(const emu_operand *op)
{
    *(uint32_t *)op[0].out = round_bf16(float_of(op[1].in)) << 16 | round_bf16(float_of(op[2].in));
}

static void pair_f16(const emu_operand *op)
{
    *(uint32_t *)op[0].out = round_f16(float_of(op[1].in)) << 16 | round_f16(float_of(op[2].in));
}

/* ---- by what is in their texts; the first that is ---- */

static const struct {
    const char *part;
    emu_instruction *run;
} rows[] = {
    {"wgmma.mma_async", emu_wgmma},
    {"wgmma.commit_group", emu_wgmma_commit},
    {"wgmma.wait_group", emu_wgmma_wait},
    {"wgmma.fence", nothing},
    {"mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1", emu_mbarrier_wait},
    {"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;", emu_mbarrier_expect},
    {"cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];", emu_mbarrier_arrive_copied},
    {"mbarrier.arrive.shared::cta.b64 _, [%0];", emu_mbarrier_arrive},
    {"mbarrier.arrive.shared::cluster.b64 _, [%0];", emu_mbarrier_arrive},
    {"mbarrier.init.shared::cta.b64 [%0], %1;", emu_mbarrier_init},
    {"fence.mbarrier_init", nothing},
    {"fence.proxy.async.shared::cta;", proxy_fence},
    {"prefetch.tensormap", nothing},
    {"tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster",
     emu_tensor_load_many},
    {"tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster",
     emu_tensor_load_many_4d},
    {"cp.async.bulk.tensor.2d.shared::cluster.global.tile", emu_tensor_load_2d},
    {"cp.async.bulk.tensor.3d.shared::cluster.global.tile", emu_tensor_load_3d},
    {"cp.async.bulk.tensor.4d.shared::cluster.global.tile", emu_tensor_load_4d},
    {"bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
     emu_bulk_load_many},
    {"cp.async.bulk.shared::cluster.global.mbarrier", emu_bulk_load},
    {"cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group", emu_tensor_store_2d},
    {"cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group", emu_tensor_store_4d},
    {"cp.async.bulk.commit_group", emu_bulk_commit},
    {"cp.async.bulk.wait_group", emu_bulk_wait},
    {"fence.release.sync_restrict::shared::cta.cluster;", cluster_sync}, /* and a relaxed arrival */
    {"barrier.cluster.arrive.relaxed.aligned", cluster_meet},
    {"%%cluster_ctarank", rank},
    {"%%cluster_nctarank", size},
    {"%%clusterid.x", cluster_id},
    {"mapa.shared::cluster.u32 %0, %1, %2;", map},
    {"ld.shared::cluster.v2", load_remote_2},
    {"ld.shared::cluster.v4", load_remote_4},
    {"st.async.shared::cluster.mbarrier::complete_tx::bytes.v2", emu_send_2},
    {"st.async.shared::cluster.mbarrier::complete_tx::bytes.v4", emu_send_4},
    {"st.shared.v4.u32 [%0], {%1, %1, %1, %1};", store_same},
    {"st.shared.v4", store_4},
    {"st.shared.f32 [%0], %1;", store_1},
    {"ld.shared.u16 h, [%1];\ncvt.u32.u16 %0, h;", load_u16_wide},
    {"ld.shared.u16 %0, [%1];", load_u16},
    {"stmatrix.sync.aligned.m8n8.x4.trans.shared.b16", stmatrix_trans},
    {"stmatrix.sync.aligned.m8n8.x4.shared.b16", stmatrix},
    {"setmaxnreg", nothing},
    {"bar.arrive %0, %1;", bar_arrive},
    {"ld.acquire.gpu.global", load_acquire},
    {"st.release.gpu.global.s32 [%0], 1;", store_release},
    {"red.release.gpu.global.add.u32 [%0], %1;", add_release},
    {"lop3.b32 %0, %1, %2, %3, 0x", lop3},
    {"xor.b32 %0, %0, %1;", xor_in},
    {"mov.b32 %0, 0;", zero},
    {"ex2.approx.ftz.f32 %0, %1;", ex2},
    {"sub.bf16x2 %0, %1, %2;", sub_bf16},
    {"sub.f16x2 %0, %1, %2;", sub_f16},
    {"mul.rn.bf16x2 %0, %1, %2;", mul_bf16},
    {"mul.rn.f16x2 %0, %1, %2;", mul_f16},
    {"cvt.rn.bf16x2.f32 %0, %1, %2;", pair_bf16},
    {"cvt.rn.f16x2.f32 %0, %1, %2;", pair_f16},
};

emu_instruction *emu_find_hopper(const char *text)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(text, rows[i].part)) return rows[i].run;
    return NULL;
}
