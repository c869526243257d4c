/* routed_bytes_table.cuh - the kernels of routed experts with inputs of bytes for one kind of
 * weights, by rows, by what changes along k and by the order of codes. Compiled once a kind,
 * SW_W8A8_KIND (instances.txt). */
#include "kernels/cuda/experts/routed_bytes.cuh"
#include "kernels/cuda/experts/routed_kernels.h"

template <class CUT> static rt_kernel rt_entry(void)
{
    return {CUT::T, {(const void *)swk_routed_bytes_sm90<CUT, true>,
                     (const void *)swk_routed_bytes_sm90<CUT, false>},
            rt_few<CUT>::shared_bytes, CUT::threads, CUT::box, 1, rt_few<CUT>::partial_floats};
}

#define RT_ENTRY(T, STAGES, COPIERS, MODE, COLUMNS) \
    {MODE, COLUMNS, rt_entry<rt_byte_cut<SW_W8A8_KIND, T, STAGES, COPIERS, MODE, COLUMNS>>()}
#define RT_LEAST_AND_MOST(MODE, COLUMNS) \
    RT_ENTRY(16, 6, 64, MODE, COLUMNS), RT_ENTRY(128, 4, 128, MODE, COLUMNS)
#ifdef SW_CUDA_QUICK
#define RT_ALL RT_LEAST_AND_MOST
#else
#define RT_ALL(MODE, COLUMNS)                                                          \
    RT_LEAST_AND_MOST(MODE, COLUMNS), RT_ENTRY(32, 5, 64, MODE, COLUMNS),              \
        RT_ENTRY(64, 5, 128, MODE, COLUMNS)
#endif

/* Of E4M3 whose codes are not in columns, which is rare, the least and the most rows alone. */
static const struct {
    w8a8_mode mode;
    bool in_columns;
    rt_kernel kernel;
} kernels[] = {
#if SW_HAS_X_GROUPS
    RT_LEAST_AND_MOST(W8A8_PLAIN, false), RT_LEAST_AND_MOST(W8A8_X_GROUPS, false),
    RT_ALL(W8A8_PLAIN, true), RT_ALL(W8A8_X_BLOCKS, true),
#else
    RT_ALL(W8A8_PLAIN, false),
#endif
#if SW_HAS_GROUPS
    RT_ALL(W8A8_GROUPED, false),
#endif
};

extern "C" const rt_kernel *SW_INSTANCE(sw_routed_bytes)(int rows, w8a8_mode mode,
                                                         bool in_columns)
{
    for (const auto &k : kernels)
        if (k.kernel.rows == rows && k.mode == mode && k.in_columns == in_columns)
            return &k.kernel;
    return NULL;
}
