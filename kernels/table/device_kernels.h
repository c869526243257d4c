/* device_kernels.h - the device's matrix kernels by name, in builds without CUDA as well.
 *
 * What they are is data (cuda/cuda_kernels.def); the code is linked where nvcc was found.
 */
#ifndef SW_KERNELS_TABLE_DEVICE_KERNELS_H
#define SW_KERNELS_TABLE_DEVICE_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_device_kernel {
    const char *name;
    const char *ops;    /* "W4A16, W8A16": weights and inputs that it multiplies */
    int sm_min, sm_max; /* compute capability of the devices that it runs on, as 80, 90 */
} sw_device_kernel;
#define SW_DEVICE_SM_ANY 999 /* of sm_max: that device and all later ones */

extern const sw_device_kernel sw_device_kernels[]; /* in the order in which they are tried */
extern const int sw_n_gpu_kernels;

#ifdef __cplusplus
}
#endif
#endif
