#!/bin/bash
# The kernels that devices without code of their own get: PTX of sm_80, compiled by the driver, on
# whatever device is present. Without one, or without the CUDA half, it says so.
program=${BUILD:-build/release}/tests/gpu/test_gemm

[ -x "$program" ] || { echo 'skipped: built without CUDA'; exit 77; }
[ "${CUDA_ARCH:-native}" = all ] || { echo 'skipped: built for one device; CUDA_ARCH=all has that code'; exit 77; }
CUDA_FORCE_PTX_JIT=1 exec "$program" older_devices
