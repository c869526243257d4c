/* emulated.h - whether the processor takes the device's place (tests/emulate), and whether a tool
 * follows every access (CONFIG=checked; emulation is built so, too). What runs in a blink on a
 * device takes minutes there, so that tests leave out the larger of their cases.
 */
#ifndef SW_TESTS_GPU_SUPPORT_EMULATED_H
#define SW_TESTS_GPU_SUPPORT_EMULATED_H

#ifdef SW_EMULATED
#define DEVICE_IS_EMULATED true
#else
#define DEVICE_IS_EMULATED false
#endif

#ifdef SW_CHECKED
#define DEVICE_IS_FOLLOWED true
#else
#define DEVICE_IS_FOLLOWED false
#endif

#endif
