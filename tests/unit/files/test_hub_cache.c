/* test_hub_cache.c - ids of the Hub, the cache that has them, and what is not all there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/checkpoint/hub_cache.h"
#include "tests/support/scratch.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OTHER "01234567ffffffff0123456789abcdef01234567"
#define REPO "models--org--name"
#define SNAPSHOT REPO "/snapshots/" COMMIT

static void ids_are_the_hubs(void **state)
{
    static const char *const good[][3] = {
        {"org/name", "org/name", "main"},
        {"Qwen/Qwen2.5-7B_x@v1.0", "Qwen/Qwen2.5-7B_x", "v1.0"},
        {"o/n@refs/pr/1", "o/n", "refs/pr/1"},
        {"org/name@" COMMIT, "org/name", COMMIT},
    };
    static const char *const bad[] = {
        "", "name", "/", "org/", "/name", "org/name/more", "../name", "org/..", "./name",
        "org/.x", "org/x.", "-org/name", "org/na--me", "org/na..me", "org//name", "org/na me",
        "org/n\xc3\xa4", "org/name@", "org/name@/abs", "org/name@../x", "org/name@a/../b",
        "org/name@a//b", "org/name@a/", "org/name@-x", "org/name@a b", "org/name@.x",
        "org/name@a/.b", "org/name@a;b", "org@x/name", "org/name@a\nb", "@main", "org/name@@x",
        "a\\b/c", "org/name@a..b"};
    char long_part[200];
    sw_hub_id id;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (!sw_hub_id_parse(&id, good[i][0])) fail_msg("%s is no id", good[i][0]);
        assert_string_equal(id.repo, good[i][1]);
        assert_string_equal(id.revision, good[i][2]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (sw_hub_id_parse(&id, bad[i])) fail_msg("\"%s\" is an id", bad[i]);
    (void)snprintf(long_part, sizeof long_part, "org/%0*d", SW_HUB_PART_MAX, 1);
    assert_true(sw_hub_id_parse(&id, long_part));
    (void)snprintf(long_part, sizeof long_part, "org/%0*d", SW_HUB_PART_MAX + 1, 1);
    assert_false(sw_hub_id_parse(&id, long_part));
}

/* A cache with one snapshot, its config and its only weight behind links to blobs. */
static void make_cache(const scratch *s)
{
    static const char *const dirs[] = {REPO, REPO "/refs", REPO "/refs/refs", REPO "/snapshots",
                                       REPO "/blobs", SNAPSHOT};

    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) scratch_make_dir(s, dirs[i]);
    scratch_write_text(s, REPO "/refs/main", COMMIT);
    scratch_write_text(s, REPO "/refs/refs/one", COMMIT "\n");
    scratch_write_text(s, REPO "/blobs/aa", "{}");
    assert_int_equal(symlink("../../blobs/aa", scratch_path(s, SNAPSHOT "/config.json")), 0);
    assert_int_equal(symlink("../../blobs/aa", scratch_path(s, SNAPSHOT "/model.safetensors")), 0);
    assert_int_equal(setenv("HF_HUB_CACHE", s->dir, 1), 0);
}

/* NULL: it is found. */
static void expect(const char *text, sw_code want, const char *says)
{
    char dir[SW_PATH_BYTES];
    sw_hub_id id;
    sw_err err = {0};

    assert_true(sw_hub_id_parse(&id, text));
    if (sw_hub_find(dir, &id, &err) != want) fail_msg("%s: code %d, %s", text, err.code, err.text);
    if (want == SW_OK && !strstr(dir, SNAPSHOT)) fail_msg("%s is %s", text, dir);
    if (want != SW_OK && !strstr(err.text, says)) fail_msg("%s: %s, want %s", text, err.text, says);
}

static void revisions_are_refs_and_commits(void **state)
{
    const scratch *s = *state;

    make_cache(s);
    expect("org/name", SW_OK, NULL);
    expect("org/name@main", SW_OK, NULL);
    expect("org/name@refs/one", SW_OK, NULL);
    expect("org/name@" COMMIT, SW_OK, NULL);
    expect("org/name@0123", SW_OK, NULL);
    expect("org/name@012", SW_E_IO, "no snapshot of revision 012; hf download org/name --revision "
           "012");
    expect("org/name@v2", SW_E_IO, "hf download org/name --revision v2");
    expect("org/name@refs", SW_E_IO, "no snapshot of revision refs;");
    expect("org/other", SW_E_IO, "hf download org/other --revision main");
    scratch_make_dir(s, REPO "/snapshots/" OTHER);
    expect("org/name@01234567", SW_E_USAGE, "among them " COMMIT " and " OTHER);
    expect("org/name@012345678", SW_OK, NULL);
    scratch_write_text(s, REPO "/refs/bad", "../../../../etc");
    expect("org/name@bad", SW_E_FORMAT, "refs/bad: holds no commit");
    scratch_write(s, REPO "/refs/nul", "0123456789abcdef0123456789abcdef0123456\0", 40);
    expect("org/name@nul", SW_E_FORMAT, "refs/nul: holds no commit");
    scratch_write_text(s, REPO "/refs/gone", "ffffffffffffffffffffffffffffffffffffffff");
    expect("org/name@gone", SW_E_IO, "no snapshot of revision gone");
}

static void the_cache_is_where_the_environment_says(void **state)
{
    const scratch *s = *state;

    make_cache(s);
    unsetenv("HF_HUB_CACHE");
    setenv("HF_HOME", s->dir, 1);
    expect("org/name", SW_E_IO, "/hub; for the latter: hf download org/name --revision main");
    assert_int_equal(symlink(".", scratch_path(s, "hub")), 0);
    expect("org/name", SW_OK, NULL);
    unsetenv("HF_HOME");
    setenv("XDG_CACHE_HOME", s->dir, 1);
    expect("org/name", SW_E_IO, "no model of this id");
    scratch_make_dir(s, "huggingface");
    assert_int_equal(symlink("..", scratch_path(s, "huggingface/hub")), 0);
    expect("org/name", SW_OK, NULL);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", s->dir, 1);
    expect("org/name", SW_E_IO, "/.cache/huggingface/hub; for the latter");
    scratch_make_dir(s, ".cache");
    assert_int_equal(symlink("../huggingface", scratch_path(s, ".cache/huggingface")), 0);
    expect("org/name", SW_OK, NULL);
    setenv("HF_HUB_CACHE", "~/huggingface/hub", 1);
    expect("org/name", SW_OK, NULL);
    unsetenv("HF_HUB_CACHE");
    unsetenv("HOME");
    expect("org/name", SW_E_IO, "no HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME or HOME");
}

static void what_is_missing_is_named(void **state)
{
    const scratch *s = *state;
    static const char remedy[] = "finish it: hf download org/name --revision " COMMIT;

    make_cache(s);
    scratch_write_text(s, REPO "/blobs/bb.incomplete", "half");
    expect("org/name", SW_E_IO, "blobs/bb.incomplete is a download that was not finished");
    expect("org/name", SW_E_IO, remedy);
    scratch_write_text(s, SNAPSHOT "/model.safetensors.index.json",
                       "{\"weight_map\": {\"a\": \"model.safetensors\", \"b\": "
                       "\"model-2.safetensors\", \"c\": \"../../x\", \"d\": 1}}");
    expect("org/name", SW_E_IO, "model-2.safetensors is missing, which the index names");
    expect("org/name", SW_E_IO, remedy);
    assert_int_equal(symlink("../../blobs/cc", scratch_path(s, SNAPSHOT "/z.safetensors")), 0);
    assert_int_equal(symlink("../../blobs/cc", scratch_path(s, SNAPSHOT "/tokenizer.json")), 0);
    expect("org/name", SW_E_IO, "tokenizer.json is a link to nothing");
    assert_int_equal(unlink(scratch_path(s, SNAPSHOT "/z.safetensors")), 0);
    assert_int_equal(unlink(scratch_path(s, SNAPSHOT "/tokenizer.json")), 0);
    assert_int_equal(unlink(scratch_path(s, SNAPSHOT "/model.safetensors.index.json")), 0);
    assert_int_equal(unlink(scratch_path(s, SNAPSHOT "/model.safetensors")), 0);
    expect("org/name", SW_E_IO, "it has no weights");
}

static void a_snapshot_knows_where_it_is_from(void **state)
{
    const scratch *s = *state;
    sw_hub_id id;

    make_cache(s);
    assert_true(sw_hub_origin(&id, scratch_path(s, SNAPSHOT), false));
    assert_string_equal(id.repo, "org/name");
    assert_string_equal(id.revision, COMMIT);
    assert_true(sw_hub_origin(&id, scratch_path(s, SNAPSHOT "/model.gguf"), true));
    assert_int_equal(symlink(SNAPSHOT, scratch_path(s, "link")), 0);
    assert_true(sw_hub_origin(&id, scratch_path(s, "link"), false));
    assert_false(sw_hub_origin(&id, s->dir, false));
    assert_false(sw_hub_origin(&id, scratch_path(s, REPO "/snapshots"), false));
    assert_false(sw_hub_origin(&id, scratch_path(s, "none"), false));
    assert_false(sw_hub_origin(&id, "x.gguf", true));
}

static int set_up(void **state)
{
    static const char *const names[] = {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    return scratch_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_the_hubs),
        cmocka_unit_test_setup_teardown(revisions_are_refs_and_commits, set_up, scratch_teardown),
        cmocka_unit_test_setup_teardown(the_cache_is_where_the_environment_says, set_up,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(what_is_missing_is_named, set_up, scratch_teardown),
        cmocka_unit_test_setup_teardown(a_snapshot_knows_where_it_is_from, set_up,
                                        scratch_teardown),
    };

    return cmocka_run_group_tests_name("hub_cache", tests, NULL, NULL);
}
