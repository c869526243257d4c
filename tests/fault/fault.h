/* fault.h - make the N-th allocation or the N-th system call fail, for every N.
 *
 *   static sw_code attempt(void *ctx, sw_err *err);   writes a checkpoint to a scratch directory
 *   fault_run(&(fault_plan){.name = "write", .attempt = attempt, .ctx = &s, ...});
 *
 * The attempt is first run undisturbed, which must succeed and counts the calls; then once per
 * call with just that call failing. Each time it must return the right code with a message,
 * and every block and descriptor that it took must be back. Programs in tests/fault/ are
 * linked with --wrap for the functions below; cJSON is hooked as well. What libc, OpenMP or
 * libcrypto allocate for themselves is not reached.
 */
#ifndef SW_TESTS_FAULT_FAULT_H
#define SW_TESTS_FAULT_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"

enum {
    FAULT_MEMORY = 1, /* malloc calloc realloc aligned_alloc posix_memalign -> SW_E_NOMEM */
    FAULT_WRITE = 2,  /* pwrite posix_fallocate: disk full -> SW_E_IO */
    FAULT_SYNC = 4,   /* fsync: I/O error -> SW_E_IO */
    FAULT_NAME = 8,   /* rename renameat2 mkdir -> SW_E_IO */
    FAULT_READ = 16,  /* mmap -> SW_E_IO */
    FAULT_OUTPUT = FAULT_WRITE | FAULT_SYNC | FAULT_NAME,
    FAULT_ALL = FAULT_MEMORY | FAULT_OUTPUT | FAULT_READ
};

typedef struct fault_plan {
    const char *name;
    unsigned kinds; /* FAULT_* or-ed; each is tried on its own, and must have a call to fail */
    /* Must release all that it took, on success and on failure. */
    sw_code (*attempt)(void *ctx, sw_err *err);
    /* All optional, and not disturbed. */
    void (*before)(void *ctx);       /* before each attempt: set the scene */
    void (*after_failure)(void *ctx); /* nothing half-written? outputs untouched? */
    void (*after_success)(void *ctx); /* complete? */
    void *ctx;
    bool has_no_exchange; /* an old file system: renameat2 says EINVAL, as on NFS */
    bool has_no_link;     /* and link says EPERM, as on FAT */
    /* Per kind; more calls than this are sampled evenly, and of memory half of the samples are the
     * first calls of places in the program. 0: 2000 */
    int64_t max_runs;
} fault_plan;

/* Fails the running cmocka test with the plan, the kind and N. */
void fault_run(const fault_plan *plan);

/* One undisturbed attempt in which every pwrite is short and every third is interrupted by a
 * signal, as is every other fsync: it must succeed all the same. */
void fault_run_slow_disk(const fault_plan *plan);

#endif
