/* fuzz_journal.c - hostile journals: the bytes as they are, and their lines with digests that fit.
 *
 * What is accepted must fit its own key and number its blocks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/checkpoint/writer/journal.h"

#define LINE_ROOM (2 * SW_SHA256_HEX_BYTES)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void insist(int holds)
{
    if (!holds) abort();
}

static void try_text(const char *text, size_t n_bytes)
{
    sw_journal j;
    sw_err err = {0};

    if (sw_journal_parse(&j, text, n_bytes, "input", &err) != SW_OK) {
        insist(err.code == SW_E_FORMAT && err.text[0] != '\0');
        return;
    }
    insist(cJSON_IsObject(j.key) && j.size_bytes <= n_bytes && j.fd == -1);
    insist(sw_journal_check_key(&j, j.key, "input", &err) == SW_OK);
    for (int64_t b = 0; b < sw_journal_n_blocks(&j); b++) {
        const cJSON *block = cJSON_GetArrayItem(j.blocks, (int)b);
        insist(sw_json_member(block, "block")->valuedouble == (double)b);
        insist(cJSON_IsArray(sw_json_member(block, "tensors")));
        insist(cJSON_IsObject(sw_json_member(block, "rows")));
    }
    sw_journal_close(&j);
}

/* The digest that journal.h describes, written once more from its words. */
static void seal(char last[SW_SHA256_HEX_BYTES], const char *json, size_t n_json)
{
    char both[LINE_ROOM], digest[SW_SHA256_HEX_BYTES];

    insist(sw_sha256_hex(digest, json, n_json, NULL) == SW_OK);
    (void)snprintf(both, sizeof both, "%s%s", last, digest);
    insist(sw_sha256_hex(last, both, strlen(both), NULL) == SW_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *end;
    char last[SW_SHA256_HEX_BYTES] = "", *sealed = NULL;
    size_t n_lines = 1, n = 0;

    try_text(text, size);
    for (size_t i = 0; i < size; i++) n_lines += text[i] == '\n';
    if (SW_MEM_GET(&sealed, size + n_lines * SW_SHA256_HEX_BYTES + 1, "sealed", NULL) != SW_OK)
        return 0;
    for (size_t at = 0; at < size && (end = memchr(text + at, '\n', size - at));
         at = (size_t)(end - text) + 1) {
        size_t n_json = (size_t)(end - (text + at));
        seal(last, text + at, n_json);
        memcpy(sealed + n, last, SW_SHA256_HEX_BYTES - 1);
        sealed[n + SW_SHA256_HEX_BYTES - 1] = ' ';
        n += SW_SHA256_HEX_BYTES;
        memcpy(sealed + n, text + at, n_json + 1);
        n += n_json + 1;
    }
    try_text(sealed, n);
    sw_mem_put(sealed);
    return 0;
}
