/* expert_stack.c - see expert_stack.h. */
#include "formats/checkpoint/expert_stack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD ".experts."
#define DIGITS_MAX 6

static const struct {
    const char *leaf, *stack;
    int64_t turns, turn;
} leaves[] = {
    {"gate_proj", "gate_up_proj", 2, 0},
    {"up_proj", "gate_up_proj", 2, 1},
    {"down_proj", "down_proj", 1, 0},
};

bool sw_stack_find(sw_stack_place *out, const char *module_path, const char *suffix)
{
    const char *at = strstr(module_path, WORD), *number = at ? at + strlen(WORD) : "";
    size_t n_digits = strspn(number, "0123456789");
    sw_stack_place place = {.expert = 0};

    if (!n_digits || n_digits > DIGITS_MAX || number[n_digits] != '.') return false;
    place.expert = strtol(number, NULL, 10);
    for (size_t i = 0; i < sizeof leaves / sizeof *leaves; i++) {
        int n;
        if (strcmp(number + n_digits + 1, leaves[i].leaf) != 0) continue;
        n = snprintf(place.name, sizeof place.name, "%.*s" WORD "%s_%s", (int)(at - module_path),
                     module_path, leaves[i].stack, suffix);
        place.turns = leaves[i].turns;
        place.turn = leaves[i].turn;
        if (n < 0 || (size_t)n >= sizeof place.name) return false;
        *out = place;
        return true;
    }
    return false;
}

sw_part sw_stack_part(const sw_part *part, const sw_stack_place *place, int64_t n_experts)
{
    sw_part whole = *part;

    whole.n_dims++;
    whole.shape[0] = n_experts;
    whole.shape[1] = place->turns * part->shape[0];
    for (int32_t i = 1; i < part->n_dims; i++) whole.shape[i + 1] = part->shape[i];
    return whole;
}

static size_t row_bytes_of(const sw_part *part)
{
    size_t bytes = (size_t)sw_dtype_bits(part->dtype) / 8;

    for (int32_t i = 1; i < part->n_dims; i++) bytes *= (size_t)part->shape[i];
    return bytes;
}

static size_t row_at(const sw_part *part, const sw_stack_place *place, int64_t n)
{
    return (size_t)((place->expert * part->shape[0] + n) * place->turns + place->turn);
}

void sw_stack_gather(void *part_data, const void *stack, const sw_part *part,
                     const sw_stack_place *place)
{
    size_t bytes = row_bytes_of(part);

    for (int64_t n = 0; n < part->shape[0]; n++)
        memcpy((char *)part_data + (size_t)n * bytes,
               (const char *)stack + row_at(part, place, n) * bytes, bytes);
}

void sw_stack_scatter(void *stack, const void *part_data, const sw_part *part,
                      const sw_stack_place *place)
{
    size_t bytes = row_bytes_of(part);

    for (int64_t n = 0; n < part->shape[0]; n++)
        memcpy((char *)stack + row_at(part, place, n) * bytes,
               (const char *)part_data + (size_t)n * bytes, bytes);
}
