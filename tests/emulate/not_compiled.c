/* not_compiled.c - formats of Hopper's matrix kernels that are not compiled for the processor, for
 * that takes long: launches of them fail. All is weak, as in not_emulated.c.
 */
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas.h"
#include "kernels/cuda/gemm/quantized_input/w8a8_args.h"
#include "kernels/cuda/gemm/weight_only/persistent/w4a16_persistent_args.h"
#include "kernels/cuda/gemm/weight_only/weight_only_kernels.h"

#define EMU_NO_WEIGHT_ONLY(type, name)                                       \
    __attribute__((weak)) const type *name(int tile, int cut, bool has_zeros) \
    {                                                                        \
        static const type none;                                              \
                                                                             \
        (void)tile, (void)cut, (void)has_zeros;                              \
        return &none;                                                        \
    }
#define EMU_NO_CODES(type, prefix)           \
    EMU_NO_WEIGHT_ONLY(type, prefix##_bf16)   \
    EMU_NO_WEIGHT_ONLY(type, prefix##_f16)    \
    EMU_NO_WEIGHT_ONLY(type, prefix##_bf16_3) \
    EMU_NO_WEIGHT_ONLY(type, prefix##_f16_3)  \
    EMU_NO_WEIGHT_ONLY(type, prefix##_bf16_2) \
    EMU_NO_WEIGHT_ONLY(type, prefix##_f16_2)
EMU_NO_CODES(nw_kernel, sw_w4a16)
EMU_NO_CODES(nwl_kernel, sw_w4a16_persistent)
EMU_NO_WEIGHT_ONLY(nw_kernel, sw_w4a16_bf16_fused)
EMU_NO_WEIGHT_ONLY(nwl_kernel, sw_w4a16_persistent_bf16_fused)

#define EMU_NO_INPUT(name, by, and)                              \
    __attribute__((weak)) const w8a8_kernel *name(by cut, and is) \
    {                                                            \
        static const w8a8_kernel none;                           \
                                                                 \
        (void)cut, (void)is;                                     \
        return &none;                                            \
    }
#define SW_W8A8_KIND_ROW(kind, name)                        \
    EMU_NO_INPUT(sw_w8a8_split_k_##name, int, w8a8_mode)     \
    EMU_NO_INPUT(sw_w8a8_two_ctas_##name, int, w8a8_mode)    \
    EMU_NO_INPUT(sw_w8a8_persistent_##name, w8a8_mode, bool)
#include "kernels/cuda/gemm/quantized_input/w8a8_kinds.def"
#undef SW_W8A8_KIND_ROW
