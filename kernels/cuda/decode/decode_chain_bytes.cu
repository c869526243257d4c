/* decode_chain_bytes.cu - chains of products of bytes, a scale a channel, with quantized inputs. */
#include "kernels/cuda/decode/decode_chain_kernels.cuh"

const chain_row sw_decode_chain_rows[ONE_COUNT] = {
    {},
    {},
    {product_bytes<ONE_INT8>, start_chain<ONE_INT8>},
    {product_bytes<ONE_E4M3>, start_chain<ONE_E4M3>},
    {},
};
