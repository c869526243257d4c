/* block_type.c - see block_type.h. */
#include "formats/base/block_type.h"

#include <stdio.h>
#include <strings.h>

const sw_block_size sw_block_sizes[SW_BLOCK_TYPE_COUNT] = {
#define SW_BLOCK(name, id, elems, bytes, kind) [SW_BLOCK_##name] = {#name, id, elems, bytes, kind},
#include "formats/base/block_type.def"
#undef SW_BLOCK
};

/* Types that files have, or had, and that are not read here. */
static const struct {
    uint32_t id;
    const char *name;
} others[] = {
    {4, "Q4_2 (removed)"}, {5, "Q4_3 (removed)"}, {9, "Q8_1"}, {15, "Q8_K"}, {24, "I8"},
    {25, "I16"}, {26, "I32"}, {27, "I64"}, {28, "F64"}, {31, "Q4_0_4_4 (removed)"},
    {32, "Q4_0_4_8 (removed)"}, {33, "Q4_0_8_8 (removed)"}, {41, "Q1_0"},
};

static const char *other_name(uint32_t id)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].id == id) return others[i].name;
    return "unknown";
}

sw_code sw_block_type_by_id(sw_block_type *out, uint32_t id, sw_err *err)
{
    char names[240] = "";
    size_t at = 0;

    for (int t = 0; t < SW_BLOCK_TYPE_COUNT; t++) {
        if (sw_block_sizes[t].id != id) continue;
        *out = (sw_block_type)t;
        return SW_OK;
    }
    for (int t = 0; t < SW_BLOCK_TYPE_COUNT && at < sizeof names; t++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", t ? " " : "",
                               sw_block_sizes[t].name);
    return SW_FAIL(err, SW_E_UNSUPPORTED, "type %u, %s, is not read; there are %s", id,
                   other_name(id), names);
}

bool sw_block_type_find(sw_block_type *out, const char *name)
{
    for (int t = 0; t < SW_BLOCK_TYPE_COUNT; t++) {
        if (strcasecmp(sw_block_sizes[t].name, name)) continue;
        *out = (sw_block_type)t;
        return true;
    }
    return false;
}
