/* Links only when every library that Swage uses is there, headers included. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cblas.h>
#include <cjson/cJSON.h>
#include <lapacke.h>
#include <omp.h>
#include <openssl/evp.h>
#include <pcre2.h>
#include <utf8proc.h>
#include <zstd.h>
#include <cmocka.h>

int main(void)
{
    uint32_t have_jit = 0;
    double a = 4;

    (void)pcre2_config_8(PCRE2_CONFIG_JIT, &have_jit);
    return cJSON_Version() && utf8proc_version() && ZSTD_versionNumber() && EVP_sha256() &&
                   cblas_dnrm2(1, &a, 1) > 0 && omp_get_max_threads() &&
                   !LAPACKE_dpotrf(LAPACK_ROW_MAJOR, 'U', 1, &a, 1)
               ? 0
               : 1;
}
