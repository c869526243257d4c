/* test_device_list.c - which devices `--device` takes of those that a host has, told by their
 * descriptions alone, and what a build without CUDA finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "tools/device/device_list.h"

#define GB ((int64_t)1 << 30)
#define H200 {.name = "NVIDIA H200", .arch = 90, .total_bytes = 141 * GB}
#define H100 {.name = "NVIDIA H100", .arch = 90, .total_bytes = 80 * GB}

enum { THERE_MAX = 5 };

static const struct {
    const char *word;
    sw_device_info there[THERE_MAX]; /* index is filled in */
    int n_there;
    sw_code want;
    const char *text; /* of the error, or of the note; NULL: none */
    int n, items[THERE_MAX];
} cases[] = {
    {"cuda", {H200}, 1, SW_OK, NULL, 1, {0}},
    {"cuda", {H200, H200, H200}, 3, SW_OK, NULL, 3, {0, 1, 2}},
    {"cuda", {{.index = 0}}, 0, SW_OK, NULL, 0, {0}},
    {"cuda", {H200, H100, H200}, 3, SW_OK,
     "cuda:1 (NVIDIA H100, 81920 MB: another name than cuda:0)", 2, {0, 2}},
    {"cuda", {H100, H200, H200}, 3, SW_OK, "than cuda:0), cuda:2 (NVIDIA H200", 1, {0}},
    {"cuda", {H200, {.name = "NVIDIA H200", .arch = 100, .total_bytes = 141 * GB}}, 2, SW_OK,
     "another compute capability than cuda:0", 1, {0}},
    {"cuda", {H200, {.name = "NVIDIA H200", .arch = 90, .total_bytes = 120 * GB}}, 2, SW_OK,
     "another memory than cuda:0", 1, {0}},
    {"cuda", {H200, {.name = "NVIDIA H200", .arch = 90, .total_bytes = 140 * GB}, H200}, 3, SW_OK,
     NULL, 3, {0, 1, 2}}, /* the driver keeps some of one */
    {"cuda:0,2", {H200, H200, H200}, 3, SW_OK, NULL, 2, {0, 2}},
    {"cuda:2,0", {H200, H200, H200}, 3, SW_OK, NULL, 2, {2, 0}},
    {"cuda:0,1", {H200, H100}, 2, SW_OK, NULL, 2, {0, 1}}, /* by name: of any kind */
    {"cuda:0,3", {H200, H200, H200}, 3, SW_E_CUDA,
     "--device cuda:0,3: there is no cuda:3; this machine has cuda:0 to cuda:2", 0, {0}},
    /* who opens the first says why there is none */
    {"cuda:0,3", {{.index = 0}}, 0, SW_OK, NULL, 2, {0, 3}},
    {"cuda:0,0", {H200}, 1, SW_E_USAGE, "--device cuda:0,0: cuda:0 is named twice", 0, {0}},
    {"cuda:1,0,01", {H200, H200}, 2, SW_E_USAGE, "cuda:1 is named twice", 0, {0}},
    {"cuda:0,", {H200}, 1, SW_E_USAGE, "cuda:N,...", 0, {0}},
    {"cuda:,1", {H200, H200}, 2, SW_E_USAGE, "cuda:N,...", 0, {0}},
    {"cuda:0,x", {H200}, 1, SW_E_USAGE, "cuda:N,...", 0, {0}},
    {"cuda:0,-1", {H200}, 1, SW_E_USAGE, "cuda:N,...", 0, {0}},
    {"cuda:0,1024", {H200}, 1, SW_E_USAGE, "cuda:N,...", 0, {0}},
    {"cuda:0,99999999", {H200}, 1, SW_E_USAGE, "a list of at most 64 devices", 0, {0}},
    /* one device, or none: who opens it has the word */
    {"cuda:1", {H200, H200}, 2, SW_OK, NULL, 0, {0}},
    {"cpu", {H200}, 1, SW_OK, NULL, 0, {0}},
    {"auto", {H200, H200}, 2, SW_OK, NULL, 0, {0}},
    {"cudax,1", {H200}, 1, SW_OK, NULL, 0, {0}},
    {NULL, {H200}, 1, SW_OK, NULL, 0, {0}},
};

static void check_case(size_t at)
{
    const char *word = cases[at].word, *said;
    sw_device_info there[THERE_MAX];
    sw_device_list list;
    sw_err err = {0};
    sw_code rc = sw_device_list_parse(&list, word, &err);

    memcpy(there, cases[at].there, sizeof there);
    for (int i = 0; i < THERE_MAX; i++) there[i].index = i;
    if (rc == SW_OK) rc = sw_device_list_choose(&list, word, there, cases[at].n_there, &err);
    if (rc != cases[at].want) fail_msg("case %zu, %s: code %d, %s", at, word, (int)rc, err.text);
    said = rc == SW_OK ? list.left : err.text;
    if (cases[at].text ? !strstr(said, cases[at].text) : said[0])
        fail_msg("case %zu, %s: \"%s\"", at, word, said);
    if (rc != SW_OK) return;
    assert_int_equal(list.n, cases[at].n);
    for (int i = 0; i < list.n; i++) assert_int_equal(list.items[i], cases[at].items[i]);
}

static void test_choice(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(i);
}

/* As many as are taken, and one more; the note holds what fits it. */
static void test_many(void **state)
{
    static sw_device_info there[SW_DEVICES_MAX];
    char word[512] = "cuda:0";
    sw_device_list list;
    sw_err err = {0};

    (void)state;
    for (int i = 0; i < SW_DEVICES_MAX; i++) {
        there[i] = (sw_device_info){.index = i, .arch = i % 8 ? 80 : 90, .total_bytes = GB};
        memset(there[i].name, 'x', sizeof there[i].name - 1);
    }
    assert_int_equal(sw_device_list_parse(&list, "cuda", &err), SW_OK);
    assert_int_equal(sw_device_list_choose(&list, "cuda", there, SW_DEVICES_MAX, &err), SW_OK);
    assert_int_equal(list.n, SW_DEVICES_MAX / 8);
    assert_int_equal(list.items[1], 8);
    assert_true(strlen(list.left) > SW_DEVICES_LEFT_BYTES / 2);
    assert_string_equal(list.left + strlen(list.left) - strlen("than cuda:0)"), "than cuda:0)");
    for (int i = 1; i <= SW_DEVICES_MAX; i++) {
        (void)snprintf(word + strlen(word), sizeof word - strlen(word), ",%d", i);
        if (i == SW_DEVICES_MAX - 1)
            assert_int_equal(sw_device_list_parse(&list, word, &err), SW_OK);
    }
    assert_int_equal(list.n, SW_DEVICES_MAX);
    assert_int_equal(sw_device_list_parse(&list, word, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "at most 64 devices"));
}

/* One process for models that have room on all devices together and not on each; a tenth of a
 * device is for other things than weights. */
static void test_spreads(void **state)
{
    static const struct {
        const char *word;
        int64_t cap_gb, n_gb;
        bool want;
    } of_two[] = {
        {"cuda:0,1", 0, 0, false},    {"cuda:0,1", 0, 60, false},  {"cuda:0,1", 0, 72, false},
        {"cuda:0,1", 0, 73, true},    {"cuda:0,1", 0, 144, true},  {"cuda:0,1", 0, 145, false},
        {"cuda:0,1", 40, 37, true},   {"cuda:0,1", 40, 73, false}, {"cuda:0,1", 200, 72, false},
        {"cuda:0,2", 0, 73, true},    {"cuda:0,2", 0, 198, true},  {"cuda:0,2", 0, 199, false},
        {"cuda:0,1,2", 0, 270, true}, {"cuda", 0, 73, true},       {"cuda:0", 0, 73, false},
        {"cuda:0,3", 0, 73, false},
    };
    const sw_device_info there[3] = {{.index = 0, .total_bytes = 80 * GB},
                                     {.index = 1, .total_bytes = 80 * GB},
                                     {.index = 2, .total_bytes = 140 * GB}};

    (void)state;
    for (size_t i = 0; i < sizeof of_two / sizeof *of_two; i++) {
        sw_device_list list;
        sw_err err = {0};

        assert_int_equal(sw_device_list_parse(&list, of_two[i].word, &err), SW_OK);
        if (list.is_all)
            assert_int_equal(sw_device_list_choose(&list, "cuda", there, 3, &err), SW_OK);
        if (sw_device_list_spreads(&list, there, 3, of_two[i].cap_gb * GB, of_two[i].n_gb * GB) !=
            of_two[i].want)
            fail_msg("case %zu, %s: %lld GB", i, of_two[i].word, (long long)of_two[i].n_gb);
    }
}

static void test_none_here(void **state)
{
    sw_device_info there[SW_DEVICES_MAX];
    sw_err err = {0};

    (void)state;
    assert_false(sw_device_is_built());
    assert_int_equal(sw_device_describe(&there[0], 0, &err), SW_E_CUDA);
    assert_int_equal(sw_devices_look(there), 0);
    assert_int_equal(sw_devices_look_apart(there), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice), cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_spreads),
                                       cmocka_unit_test(test_none_here)};

    return cmocka_run_group_tests_name("list of devices", tests, NULL, NULL);
}
