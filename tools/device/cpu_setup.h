/* cpu_setup.h - settings that libraries read only while the program is being loaded. */
#ifndef SW_TOOLS_DEVICE_CPU_SETUP_H
#define SW_TOOLS_DEVICE_CPU_SETUP_H

/* May replace the process by itself, once, with waiting threads set to sleep; returns when the
 * user has chosen a policy or it cannot be done. Call before anything else in main. */
void sw_cpu_setup(char *argv[]);

#endif
