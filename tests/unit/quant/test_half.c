/* test_half.c - what a half of a block does to the residual stream (cuda_half.h), of families that
 * differ in it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "quant/backend/cuda/cuda_half.h"
#include "tests/support/cases/launch_text.h"

typedef struct half_case {
    const char *dir;
    sw_half half;
    sw_site site;
    bool only_adds, leaves_stream;
} half_case;

static const half_case cases[] = {
    {"arch/llama", SW_HALF_BOTH, SW_SITE_ATTN_IN, false, true},
    {"arch/llama", SW_HALF_BOTH, SW_SITE_O_IN, false, true}, /* the MLP follows */
    {"arch/llama", SW_HALF_BOTH, SW_SITE_MLP_IN, false, false},
    {"arch/llama", SW_HALF_ATTENTION, SW_SITE_O_IN, true, true},
    {"arch/llama", SW_HALF_MLP, SW_SITE_MLP_IN, false, true},
    {"arch/llama", SW_HALF_MLP, SW_SITE_DOWN_IN, true, true},
    {"arch/llama", SW_HALF_MLP, SW_SITE_O_IN, false, false}, /* is not there */
    {"arch/gemma3_text", SW_HALF_ATTENTION, SW_SITE_O_IN, false, true}, /* a norm of the output */
    {"arch/gemma3_text", SW_HALF_MLP, SW_SITE_DOWN_IN, false, true},
    {"arch/qwen3_moe", SW_HALF_MLP, SW_SITE_DOWN_IN, false, false}, /* inside the experts */
    {"recipes/gemma3n", SW_HALF_BOTH, SW_SITE_O_IN, false, false}, /* copies of the stream */
    {"recipes/gemma4_text", SW_HALF_BOTH, SW_SITE_O_IN, false, false}, /* more beside it */
    {"recipes/granite", SW_HALF_MLP, SW_SITE_DOWN_IN, false, true}, /* a factor on what is added */
};

static void halves_of_families(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const half_case *c = &cases[i];
        sw_model m;

        read_model(&m, c->dir);
        if (sw_cuda_half_only_adds(&m, 0, c->half, c->site) != c->only_adds ||
            sw_cuda_half_leaves_stream(&m, 0, c->half, c->site) != c->leaves_stream)
            fail_msg("case %zu: %s", i, c->dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(halves_of_families)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
