/* check_spdx.c - whether a file is an SPDX 2.3 document with all that the specification demands:
 *     check_spdx FILE.json [LIBRARY...]
 * and a package for each library named. Prints the first thing that is missing. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "formats/io/file_content.h"

static const char *wrong; /* the first thing found */

static const char *member(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));

    if ((!text || !*text) && !wrong) wrong = key;
    return text ? text : "";
}

static void need(bool is_so, const char *what)
{
    if (!is_so && !wrong) wrong = what;
}

/* Letters, digits, dots and hyphens behind "SPDXRef-". */
static bool is_id(const char *id)
{
    if (strncmp(id, "SPDXRef-", 8) != 0 || !id[8]) return false;
    for (id += 8; *id; id++)
        if (!isalnum((unsigned char)*id) && *id != '.' && *id != '-') return false;
    return true;
}

static const cJSON *find(const cJSON *packages, const char *key, const char *value)
{
    const cJSON *p;

    cJSON_ArrayForEach(p, packages)
        if (!strcmp(member(p, key), value)) return p;
    return NULL;
}

static void check_head(const cJSON *root)
{
    const cJSON *creation = cJSON_GetObjectItemCaseSensitive(root, "creationInfo");
    const cJSON *creators = cJSON_GetObjectItemCaseSensitive(creation, "creators");
    const char *space = member(root, "documentNamespace"), *created = member(creation, "created");
    int y, mo, d, h, mi, s, n = 0;

    need(!strcmp(member(root, "spdxVersion"), "SPDX-2.3"), "spdxVersion is not SPDX-2.3");
    need(!strcmp(member(root, "dataLicense"), "CC0-1.0"), "dataLicense is not CC0-1.0");
    need(!strcmp(member(root, "SPDXID"), "SPDXRef-DOCUMENT"), "SPDXID of the document");
    (void)member(root, "name");
    need(!strncmp(space, "https://", 8) && !strchr(space, '#'), "documentNamespace is no URI");
    need(sscanf(created, "%4d-%2d-%2dT%2d:%2d:%2dZ%n", &y, &mo, &d, &h, &mi, &s, &n) == 6 &&
             n == 20 && !created[20], "created is no time in UTC");
    need(cJSON_GetArraySize(creators) > 0, "creators");
}

static void check_package(const cJSON *p, const cJSON *packages)
{
    static const char *const texts[] = {"name", "downloadLocation", "licenseConcluded",
                                        "licenseDeclared", "copyrightText", "versionInfo"};
    const cJSON *sums = cJSON_GetObjectItemCaseSensitive(p, "checksums"), *sum;
    const char *id = member(p, "SPDXID");

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) (void)member(p, texts[i]);
    need(is_id(id), "SPDXID of a package");
    need(find(packages, "SPDXID", id) == p, "two packages of one SPDXID");
    need(cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(p, "filesAnalyzed")), "filesAnalyzed");
    need(cJSON_GetArraySize(sums) > 0, "checksums");
    cJSON_ArrayForEach(sum, sums)
        need(!strcmp(member(sum, "algorithm"), "SHA256") &&
                 strspn(member(sum, "checksumValue"), "0123456789abcdef") == 64, "a checksum");
}

static void check_relationships(const cJSON *root, const cJSON *packages)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(root, "relationships"), *r;
    int n_describes = 0;

    cJSON_ArrayForEach(r, all) {
        const char *from = member(r, "spdxElementId"), *to = member(r, "relatedSpdxElement");
        n_describes += !strcmp(member(r, "relationshipType"), "DESCRIBES");
        need(!strcmp(from, "SPDXRef-DOCUMENT") || find(packages, "SPDXID", from),
             "a relationship of nothing");
        need(find(packages, "SPDXID", to) != NULL, "a relationship to nothing");
    }
    need(n_describes == 1, "the document describes not one package");
    need(cJSON_GetArraySize(all) == cJSON_GetArraySize(packages), "a package without relationship");
}

int main(int argc, char **argv)
{
    const cJSON *packages, *p;
    cJSON *root = NULL;
    sw_err err = {0};

    if (argc < 2 || sw_json_read(&root, argv[1], &sw_json_caps_config, &err) != SW_OK) {
        fprintf(stderr, "check_spdx: %s\n", argc < 2 ? "FILE.json [LIBRARY...]" : err.text);
        return 2;
    }
    packages = cJSON_GetObjectItemCaseSensitive(root, "packages");
    check_head(root);
    need(cJSON_GetArraySize(packages) > 1, "packages");
    cJSON_ArrayForEach(p, packages) check_package(p, packages);
    check_relationships(root, packages);
    for (int i = 2; i < argc; i++)
        if (!find(packages, "packageFileName", argv[i]) && !wrong) wrong = argv[i];
    if (wrong) fprintf(stderr, "check_spdx: %s: %s\n", argv[1], wrong);
    cJSON_Delete(root);
    return wrong ? 1 : 0;
}
