/* probe_libraries.c - the libraries that the program runs with: versions, and where they lie. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <cblas.h>
#include <cjson/cJSON.h>
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <lapacke.h>
#include <openssl/crypto.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>
#include <zstd.h>

#include "tools/doctor/doctor.h"

#define VERSION_BYTES 128

/* The file that holds a function; a pointer to a function and one to an object are alike in POSIX.
 */
static const char *file_of(const void *address)
{
    Dl_info info;

    return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "in the program";
}

static void probe_blas(sw_doctor *d)
{
    const char *core = openblas_get_corename();
    sw_finding *f = sw_doctor_add(d, "blas", "%s; kernels for %s, threads of its own: %d; %s",
                                  openblas_get_config(), core, openblas_get_num_threads(),
                                  file_of((const void *)(uintptr_t)openblas_get_config));

    if (!strcmp(core, "Generic") || !strcmp(core, "Prescott"))
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "OpenBLAS does not know this processor or was told "
                       "to forget it; update libopenblas, or unset OPENBLAS_CORETYPE");
    if (openblas_get_parallel() == 2)
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "this OpenBLAS brings OpenMP threads of its own; "
                       "Debian's libopenblas0-pthread is what Swage is tested with");
}

static void version_of_lapack(char out[VERSION_BYTES])
{
    lapack_int major = 0, minor = 0, patch = 0;

    LAPACK_ilaver(&major, &minor, &patch);
    (void)snprintf(out, VERSION_BYTES, "%d.%d.%d", (int)major, (int)minor, (int)patch);
}

static void version_of_pcre2(char out[VERSION_BYTES])
{
    char text[VERSION_BYTES] = "";

    (void)pcre2_config(PCRE2_CONFIG_VERSION, text);
    (void)snprintf(out, VERSION_BYTES, "%s", text);
}

void sw_probe_libraries(sw_doctor *d)
{
    char lapack[VERSION_BYTES], pcre2[VERSION_BYTES];
    const struct {
        const char *name, *version;
        uintptr_t address;
    } rows[] = {{"libc", gnu_get_libc_version(), (uintptr_t)gnu_get_libc_version},
                {"lapacke", lapack, (uintptr_t)LAPACKE_dpotrf},
                {"libcjson", cJSON_Version(), (uintptr_t)cJSON_Version},
                {"libcrypto", OpenSSL_version(OPENSSL_VERSION), (uintptr_t)OpenSSL_version},
                {"libpcre2-8", pcre2, (uintptr_t)pcre2_config_8},
                {"libutf8proc", utf8proc_version(), (uintptr_t)utf8proc_version},
                {"libzstd", ZSTD_versionString(), (uintptr_t)ZSTD_versionString}};

    version_of_lapack(lapack);
    version_of_pcre2(pcre2);
    probe_blas(d);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        (void)sw_doctor_add(d, rows[i].name, "%s; %s", rows[i].version,
                            file_of((const void *)rows[i].address));
}
