/* test_tile_file.c - weights in tiles by the name of their module: what tile_file.h hands out is
 * what the dialect holds, and what is not there is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "formats/checkpoint/checkpoint.h"
#include "kernels/tile_file.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/qtensor_gen.h"

#define SOURCE "tests/golden/arch/llama"
#define MODULE "model.layers.1.mlp.up_proj"

static void test_same_as_the_checkpoint(void **state)
{
    sw_tile_file *file = NULL;
    sw_checkpoint ckpt;
    sw_qtensor want, have;
    sw_tiles tiles;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    quantized_dir_make(scratch_path(&s, "q"), SOURCE, "swage", 4, false, 64);
    assert_int_equal(sw_tile_file_open(&file, scratch_path(&s, "q"), &err), SW_OK);
    assert_int_equal(sw_tile_file_get(&tiles, file, MODULE, &err), SW_OK);
    assert_int_equal(tiles.n_out, 256);
    assert_int_equal(tiles.k_in, 128);
    assert_int_equal(sw_checkpoint_open(&ckpt, scratch_path(&s, "q"), &err), SW_OK);
    assert_int_equal(sw_checkpoint_qtensor(&want, &ckpt, MODULE, 256, 128, &err), SW_OK);
    assert_int_equal(sw_qtensor_alloc(&have, &tiles.spec, 256, 128, &err), SW_OK);
    assert_int_equal(sw_tiles_unpack(&have, &tiles, &err), SW_OK);
    sw_gen_assert_same(&have, &want);
    sw_qtensor_free(&have);
    sw_qtensor_free(&want);
    sw_checkpoint_close(&ckpt);
    sw_tile_file_close(file);
    scratch_close(&s);
}

static void test_refusals(void **state)
{
    static const char *const names[] = {"model.layers.1.mlp", "model.layers.2.mlp.up_proj",
                                        "model.embed_tokens", ""};
    sw_tile_file *file = NULL;
    sw_tiles tiles;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    assert_int_equal(sw_tile_file_open(&file, SOURCE, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "swage convert"));
    assert_null(file);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_tile_file_open(&file, scratch_path(&s, "nowhere"), &err), SW_E_IO);
    quantized_dir_make(scratch_path(&s, "q"), SOURCE, "swage", 8, true, 0);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_tile_file_open(&file, scratch_path(&s, "q"), &err), SW_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        memset(&err, 0, sizeof err);
        assert_int_equal(sw_tile_file_get(&tiles, file, names[i], &err), SW_E_USAGE);
        assert_non_null(strstr(err.text, names[i]));
    }
    sw_tile_file_close(file);
    sw_tile_file_close(NULL);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_the_checkpoint), cmocka_unit_test(test_refusals)};

    return cmocka_run_group_tests_name("tile file", tests, NULL, NULL);
}
