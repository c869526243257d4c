/* fault.c - see fault.h. Linked into the programs of tests/fault/ alone. */
#include "tests/fault/fault.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cmocka.h>

/* nobody but the linker calls the wrappers */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define BLOCKS_MAX (1u << 18)
#define RUNS_MAX 2000
#define SITES_MAX (1u << 13)
#define SITE_FRAMES 10 /* those of the wrapper, of cJSON and of what called it, and its callers */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
int __real_posix_memalign(void **out, size_t align, size_t n);
void __real_free(void *p);
ssize_t __real_pwrite(int fd, const void *bytes, size_t n, off_t at);
int __real_posix_fallocate(int fd, off_t at, off_t n);
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __real_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
int __real_link(const char *from, const char *to);
int __real_mkdir(const char *path, mode_t mode);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);

/* Wrappers have no argument to carry state in, hence the one mutable object of its kind. */
static struct {
    pthread_mutex_t lock;
    bool is_armed, is_persistent, is_slow_disk, has_no_exchange, has_no_link;
    unsigned kind;
    int64_t n_calls, fail_at; /* fail_at < 0: count only */
    int64_t n_writes, n_syncs;
    bool is_listing; /* the calls that are the first of their site, see list_site */
    uint64_t sites[2 * SITES_MAX]; /* open addressing; 0: free */
    int64_t first_of_site[SITES_MAX], n_sites;
    void *blocks[BLOCKS_MAX]; /* open addressing; what was taken while armed and is not back */
    int64_t n_blocks;
} fault = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A place for a breakpoint: called for every call that is made to fail. */
__attribute__((noinline)) static void fault_hit(void) { __asm__ volatile("" ::: "memory"); }

/* Where a call comes from: never 0. */
static uint64_t site_here(void)
{
    void *frames[SITE_FRAMES];
    int n = backtrace(frames, SITE_FRAMES);
    uint64_t hash = 1;

    for (int i = 0; i < n; i++) hash = (hash ^ (uintptr_t)frames[i]) * 0x100000001B3u;
    return hash | 1;
}

/* With the lock held. Thousands of allocations come from some hundred places. */
static void list_site(uint64_t site, int64_t call)
{
    size_t i = (size_t)(site >> 32) % (2 * SITES_MAX);

    if (fault.n_sites == SITES_MAX) return;
    while (fault.sites[i] && fault.sites[i] != site) i = (i + 1) % (2 * SITES_MAX);
    if (fault.sites[i]) return;
    fault.sites[i] = site;
    fault.first_of_site[fault.n_sites++] = call;
}

static bool must_fail(unsigned kind)
{
    const uint64_t site = fault.is_listing && fault.kind == kind ? site_here() : 0;
    bool fails = false;

    pthread_mutex_lock(&fault.lock);
    if (fault.is_armed && fault.kind == kind) {
        int64_t call = fault.n_calls++;
        if (site) list_site(site, call);
        fails = fault.fail_at >= 0 &&
                (call == fault.fail_at || (fault.is_persistent && call > fault.fail_at));
    }
    pthread_mutex_unlock(&fault.lock);
    if (fails) fault_hit();
    return fails;
}

static size_t slot_of(const void *p)
{
    return (size_t)(((uintptr_t)p >> 4) * 0x9E3779B97F4A7C15u >> 46) % BLOCKS_MAX;
}

static void *remember(void *p)
{
    size_t i = slot_of(p);

    pthread_mutex_lock(&fault.lock);
    if (p && fault.is_armed && fault.n_blocks < BLOCKS_MAX / 2) {
        while (fault.blocks[i]) i = (i + 1) % BLOCKS_MAX;
        fault.blocks[i] = p;
        fault.n_blocks++;
    }
    pthread_mutex_unlock(&fault.lock);
    return p;
}

static void forget(const void *p)
{
    size_t i = slot_of(p);

    pthread_mutex_lock(&fault.lock);
    while (fault.blocks[i] && fault.blocks[i] != p) i = (i + 1) % BLOCKS_MAX;
    if (p && fault.blocks[i]) {
        size_t hole = i;
        fault.blocks[hole] = NULL;
        fault.n_blocks--;
        /* close the gap, so that what was pushed past it is still found */
        for (i = (i + 1) % BLOCKS_MAX; fault.blocks[i]; i = (i + 1) % BLOCKS_MAX) {
            size_t home = slot_of(fault.blocks[i]);
            if ((i - home) % BLOCKS_MAX < (i - hole) % BLOCKS_MAX) continue;
            fault.blocks[hole] = fault.blocks[i];
            fault.blocks[i] = NULL;
            hole = i;
        }
    }
    pthread_mutex_unlock(&fault.lock);
}

void *__wrap_malloc(size_t n)
{
    return must_fail(FAULT_MEMORY) ? NULL : remember(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return must_fail(FAULT_MEMORY) ? NULL : remember(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
    void *moved;

    if (must_fail(FAULT_MEMORY)) return NULL;
    forget(p);
    moved = __real_realloc(p, n);
    return remember(moved);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return must_fail(FAULT_MEMORY) ? NULL : remember(__real_aligned_alloc(align, n));
}

int __wrap_posix_memalign(void **out, size_t align, size_t n)
{
    int failed = must_fail(FAULT_MEMORY) ? ENOMEM : __real_posix_memalign(out, align, n);

    if (!failed) (void)remember(*out);
    return failed;
}

void __wrap_free(void *p)
{
    forget(p);
    __real_free(p);
}

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    if (must_fail(FAULT_WRITE)) {
        errno = ENOSPC;
        return -1;
    }
    if (fault.is_slow_disk && n > 1) {
        if (__atomic_fetch_add(&fault.n_writes, 1, __ATOMIC_RELAXED) % 3 == 0) {
            errno = EINTR;
            return -1;
        }
        n = (n + 1) / 2;
    }
    return __real_pwrite(fd, bytes, n, at);
}

int __wrap_posix_fallocate(int fd, off_t at, off_t n)
{
    return must_fail(FAULT_WRITE) ? ENOSPC : __real_posix_fallocate(fd, at, n);
}

int __wrap_fsync(int fd)
{
    if (must_fail(FAULT_SYNC)) {
        errno = EIO;
        return -1;
    }
    if (fault.is_slow_disk && __atomic_fetch_add(&fault.n_syncs, 1, __ATOMIC_RELAXED) % 2 == 0) {
        errno = EINTR;
        return -1;
    }
    return fault.is_armed ? 0 : __real_fsync(fd); /* thousands of runs need no real syncs */
}

static int name_failure(void)
{
    errno = EIO;
    return -1;
}

int __wrap_rename(const char *from, const char *to)
{
    return must_fail(FAULT_NAME) ? name_failure() : __real_rename(from, to);
}

int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    if (fault.has_no_exchange) {
        errno = EINVAL;
        return -1;
    }
    return must_fail(FAULT_NAME) ? name_failure()
                                 : __real_renameat2(from_fd, from, to_fd, to, flags);
}

int __wrap_link(const char *from, const char *to)
{
    if (!fault.has_no_link) return __real_link(from, to);
    errno = EPERM;
    return -1;
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    return must_fail(FAULT_NAME) ? name_failure() : __real_mkdir(path, mode);
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    if (must_fail(FAULT_READ)) {
        errno = EIO; /* ENOMEM would be a want of memory, which is another kind */
        return MAP_FAILED;
    }
    return __real_mmap(at, n, prot, flags, fd, offset);
}

static int count_descriptors(void)
{
    DIR *list = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(list);
    while (readdir(list)) n++;
    closedir(list);
    return n;
}

/* One attempt with call number fail_at of one kind failing; -1 for none. */
static sw_code run_once(const fault_plan *plan, unsigned kind, int64_t fail_at, bool is_persistent)
{
    int n_descriptors;
    sw_err err = {0};
    sw_code rc;

    if (plan->before) plan->before(plan->ctx);
    n_descriptors = count_descriptors();
    memset(fault.blocks, 0, fault.n_blocks ? sizeof fault.blocks : 0);
    fault.n_blocks = fault.n_calls = 0;
    fault.kind = kind;
    fault.fail_at = fail_at;
    fault.is_persistent = is_persistent;
    fault.has_no_exchange = plan->has_no_exchange;
    fault.has_no_link = plan->has_no_link;
    fault.is_armed = true;
    rc = plan->attempt(plan->ctx, &err);
    fault.is_armed = false;
    if (rc != SW_OK && (err.code != rc || !err.text[0]))
        fail_msg("%s: kind %u, call %lld: returned %d, but the message is %d \"%s\"", plan->name,
                 kind, (long long)fail_at, rc, err.code, err.text);
    if (fault.n_blocks)
        fail_msg("%s: kind %u, call %lld: %lld blocks leaked", plan->name, kind,
                 (long long)fail_at, (long long)fault.n_blocks);
    if (count_descriptors() != n_descriptors)
        fail_msg("%s: kind %u, call %lld: %d descriptors leaked", plan->name, kind,
                 (long long)fail_at, count_descriptors() - n_descriptors);
    if (fail_at < 0 && rc != SW_OK) fail_msg("%s: undisturbed: %s", plan->name, err.text);
    if (rc == SW_OK && plan->after_success) plan->after_success(plan->ctx);
    if (rc != SW_OK && plan->after_failure) plan->after_failure(plan->ctx);
    return rc;
}

/* How many calls there are, and where they come from. */
static int64_t count_calls(const fault_plan *plan, unsigned kind)
{
    memset(fault.sites, 0, sizeof fault.sites);
    fault.n_sites = 0;
    fault.is_listing = true;
    (void)run_once(plan, kind, -1, false);
    fault.is_listing = false;
    if (fault.n_calls == 0) fail_msg("%s: kind %u: nothing to make fail", plan->name, kind);
    return fault.n_calls;
}

/* The i-th of n_runs calls to make fail. Where not all allocations can be, every other one is the
 * first of its site, for few places make most of them. */
static int64_t choose_call(unsigned kind, int64_t i, int64_t n_runs, int64_t n_calls)
{
    if (kind == FAULT_MEMORY && n_runs < n_calls && i % 2 == 0)
        return fault.first_of_site[i * fault.n_sites / n_runs];
    return i * n_calls / n_runs;
}

static void run_kind(const fault_plan *plan, unsigned kind)
{
    sw_code want = kind == FAULT_MEMORY ? SW_E_NOMEM : SW_E_IO;
    const int64_t max_runs = plan->max_runs ? plan->max_runs : RUNS_MAX;
    const int64_t n_calls = count_calls(plan, kind);
    const int64_t n_runs = n_calls < max_runs ? n_calls : max_runs;
    int64_t n_met = 0;

    print_message("%s: kind %u: %lld calls from %lld places, %lld made to fail\n", plan->name, kind,
                  (long long)n_calls, (long long)fault.n_sites, (long long)n_runs);
    for (int64_t i = 0; i < n_runs; i++) {
        const int64_t fail_at = choose_call(kind, i, n_runs, n_calls);
        /* memory that is out stays out; one failing system call is the harder case */
        for (int persistent = 0; persistent <= (kind == FAULT_MEMORY); persistent++) {
            sw_code rc = run_once(plan, kind, fail_at, persistent);
            n_met += fault.n_calls > fail_at;
            if (rc == SW_OK && fault.n_calls <= fail_at) continue; /* it came to fewer calls */
            if (rc != want)
                fail_msg("%s: kind %u, call %lld: code %d, want %d", plan->name, kind,
                         (long long)fail_at, rc, want);
        }
    }
    /* threads that bring several things to the disk at once make some calls fewer, but not many */
    if (n_met < n_runs - n_runs / 8 - 1)
        fail_msg("%s: kind %u: only %lld of %lld faults were met", plan->name, kind,
                 (long long)n_met, (long long)n_runs);
}

static void hook_json(void)
{
    cJSON_Hooks hooks = {.malloc_fn = __wrap_malloc, .free_fn = __wrap_free};

    cJSON_InitHooks(&hooks);
}

void fault_run(const fault_plan *plan)
{
    hook_json();
    (void)run_once(plan, 0, -1, false); /* whatever is set up once, now is */
    for (unsigned kind = 1; kind <= FAULT_ALL; kind *= 2)
        if (plan->kinds & kind) run_kind(plan, kind);
}

void fault_run_slow_disk(const fault_plan *plan)
{
    hook_json();
    fault.is_slow_disk = true;
    (void)run_once(plan, 0, -1, false);
    fault.is_slow_disk = false;
}
