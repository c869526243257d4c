/* fuzz_json.c - any bytes as JSON: refused with a message, or read and said again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/json.h"

#define MUST(condition)            \
    do {                           \
        if (!(condition)) abort(); \
    } while (0)

static const sw_json_caps caps = {.max_bytes = 1 << 16, .max_depth = 20, .max_values = 5000};

/* Each typed read agrees with what cJSON holds, or leaves the default. */
static void check_reads(const cJSON *object)
{
    const cJSON *member;

    cJSON_ArrayForEach(member, object)
    {
        int64_t n = -7;
        double real = -7;
        bool flag = false;
        const char *text = NULL;
        if (!member->string) continue;
        if (sw_json_int(&n, object, member->string, -5, 1 << 20, NULL) != SW_OK || n != -7)
            MUST(n == -7 || (cJSON_IsNumber(member) && (double)n == member->valuedouble));
        if (sw_json_real(&real, object, member->string, NULL) != SW_OK) MUST(real == -7);
        if (sw_json_bool(&flag, object, member->string, NULL) == SW_OK && flag)
            MUST(cJSON_IsTrue(member));
        if (sw_json_text(&text, object, member->string, NULL) != SW_OK) MUST(!text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cJSON *root = NULL, *again = NULL;
    sw_err err = {0};
    char *text;
    sw_code rc = sw_json_parse(&root, (const char *)data, size, &caps, "fuzz", &err);

    if (rc != SW_OK) { /* out of memory would mean: passed our check, refused by cJSON */
        MUST(rc == SW_E_FORMAT && err.code == rc && !strncmp(err.text, "fuzz: ", 6) && !root);
        return 0;
    }
    if (cJSON_IsObject(root)) check_reads(root);
    text = cJSON_PrintUnformatted(root);
    MUST(text && sw_json_parse(&again, text, strlen(text), &(sw_json_caps){
        .max_bytes = 1 << 20, .max_depth = 20, .max_values = 5000}, "again", NULL) == SW_OK);
    cJSON_free(text);
    cJSON_Delete(again);
    cJSON_Delete(root);
    return 0;
}
