/* step_text.c - see step_text.h. */
#include "tools/terminal/step_text.h"

#include <stdio.h>
#include <string.h>

#include "tools/terminal/terminal.h"
#include "tools/terminal/units.h"

#define BAR_CELLS_MAX 24
#define BAR_CELLS_MIN 6
#define BAR_SHARE 5 /* of the line, at most one in so many columns */
#define ITEM_COLUMNS_MIN 12
#define COLUMNS_DEFAULT 80
#define ETA_AFTER_S 0.5

static const struct {
    const char *name, *unit, *plain;
} steps[] = {
#define SW_STEP(name, unit, plain) {name, unit, plain},
#include "tools/terminal/steps.def"
#undef SW_STEP
};

const char *sw_step_unit(const char *name)
{
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (!strcmp(steps[i].name, name)) return steps[i].unit;
    return "steps";
}

const char *sw_step_plain_name(const char *name)
{
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (!strcmp(steps[i].name, name) && steps[i].plain) return steps[i].plain;
    return name;
}

double sw_step_eta_s(const sw_step *step)
{
    const double n_new = (double)(step->done - step->first_done);
    const double n_left = (double)(step->total - step->done);
    const double unit_s = n_new > 0 ? step->done_s / n_new : 0;
    const double since_s = step->elapsed_s - step->done_s;

    if (step->total <= 0 || n_new <= 0 || step->elapsed_s < ETA_AFTER_S) return -1;
    if (step->done >= step->total) return 0;
    return unit_s * n_left - (since_s < unit_s ? since_s : unit_s);
}

/* ", 2 min left" while there is something left. */
static void put_eta(char out[40], const sw_step *step)
{
    const double eta_s = sw_step_eta_s(step);
    char text[24];

    out[0] = '\0';
    if (eta_s <= 0) return;
    sw_term_seconds(text, eta_s);
    (void)snprintf(out, 40, ", %s left", text);
}

/* " [####....]" into out, of as many cells as are given. */
static void put_cells(char out[64], const sw_step *step, int n_cells, bool has_colors)
{
    int filled = (int)((double)n_cells * (double)step->done / (double)step->total);
    char full[BAR_CELLS_MAX + 1], empty[BAR_CELLS_MAX + 1];

    if (filled > n_cells) filled = n_cells;
    if (filled < 0) filled = 0;
    memset(full, '#', sizeof full);
    memset(empty, '.', sizeof empty);
    (void)snprintf(out, 64, " [%s%.*s%s%.*s]", sw_color_on(SW_GREEN, has_colors), filled, full,
                   sw_color_off(has_colors), n_cells - filled, empty);
}

void sw_step_bar(char out[SW_STEP_LINE_BYTES], const sw_step *step, int columns, bool has_colors)
{
    const char *name = sw_step_plain_name(step->name);
    char count[96], eta[40], cells[64] = "", item[SW_STEP_ITEM_BYTES + 8] = "";
    int room, n_cells = (columns > 0 ? columns : COLUMNS_DEFAULT) / BAR_SHARE;

    put_eta(eta, step);
    if (step->total > 0)
        (void)snprintf(count, sizeof count, " %lld/%lld %s", (long long)step->done,
                       (long long)step->total, sw_step_unit(step->name));
    else
        (void)snprintf(count, sizeof count, " %lld %s", (long long)step->done,
                       sw_step_unit(step->name));
    room = (columns > 0 ? columns : COLUMNS_DEFAULT) - 1 - sw_text_columns(name) -
           sw_text_columns(count) - sw_text_columns(eta);
    if (n_cells > BAR_CELLS_MAX) n_cells = BAR_CELLS_MAX;
    if (n_cells > room - 3) n_cells = room - 3;
    if (step->total > 0 && n_cells >= BAR_CELLS_MIN) {
        put_cells(cells, step, n_cells, has_colors);
        room -= n_cells + 3;
    }
    if (step->item[0] && room >= ITEM_COLUMNS_MIN + 2) {
        item[0] = item[1] = ' ';
        (void)sw_name_fit(item + 2, sizeof item - 2, step->item, room - 2);
    }
    (void)snprintf(out, SW_STEP_LINE_BYTES, "%s%s%s%s%s", name, cells, count, eta, item);
}

void sw_step_line(char out[SW_STEP_LINE_BYTES], const sw_step *step)
{
    const char *name = sw_step_plain_name(step->name), *unit = sw_step_unit(step->name);
    char eta[40], took[24];

    put_eta(eta, step);
    if (step->total > 0 && step->done >= step->total) {
        sw_term_seconds(took, step->elapsed_s);
        (void)snprintf(out, SW_STEP_LINE_BYTES, "%s: %lld %s in %s", name, (long long)step->done,
                       unit, took);
    } else if (step->total > 0) {
        (void)snprintf(out, SW_STEP_LINE_BYTES, "%s: %lld of %lld %s%s", name,
                       (long long)step->done, (long long)step->total, unit, eta);
    } else {
        (void)snprintf(out, SW_STEP_LINE_BYTES, "%s: %lld %s", name, (long long)step->done, unit);
    }
}

/* The bytes of the UTF-8 character at `text`, or 0 when there is none (RFC 3629, section 4). */
static size_t character_bytes(const unsigned char *text)
{
    static const struct {
        unsigned char first, last, second_min, second_max, n;
    } forms[] = {{0x20, 0x7e, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2},
                 {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
                 {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
                 {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
                 {0xf4, 0xf4, 0x80, 0x8f, 4}};

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        size_t n = forms[i].n;
        if (text[0] < forms[i].first || text[0] > forms[i].last) continue;
        if (n > 1 && (text[1] < forms[i].second_min || text[1] > forms[i].second_max)) return 0;
        for (size_t k = 2; k < n; k++)
            if ((text[k] & 0xc0) != 0x80) return 0;
        return n;
    }
    return 0;
}

void sw_step_quote(char *out, size_t out_bytes, const char *text)
{
    const unsigned char *from = (const unsigned char *)text;
    size_t at = 0;

    out[at++] = '"';
    while (*from) {
        size_t n = character_bytes(from);
        if (at + (n ? n : 1) + 3 > out_bytes) break; /* an escape, the quote and the end */
        if (*from == '"' || *from == '\\') out[at++] = '\\';
        if (n)
            memcpy(out + at, from, n);
        else
            out[at] = '?';
        at += n ? n : 1;
        from += n ? n : 1;
    }
    out[at++] = '"';
    out[at] = '\0';
}

void sw_step_json(char out[SW_STEP_LINE_BYTES], const sw_step *step)
{
    char name[2 * SW_STEP_NAME_BYTES + 3], item[2 * SW_STEP_ITEM_BYTES + 3] = "null";
    char total[24] = "null", eta[32] = "null";
    const double eta_s = sw_step_eta_s(step);

    sw_step_quote(name, sizeof name, step->name);
    if (step->item[0]) sw_step_quote(item, sizeof item, step->item);
    if (step->total > 0) (void)snprintf(total, sizeof total, "%lld", (long long)step->total);
    if (eta_s >= 0) (void)snprintf(eta, sizeof eta, "%.3f", eta_s);
    (void)snprintf(out, SW_STEP_LINE_BYTES,
                   "{\"event\":\"step\",\"step\":%s,\"done\":%lld,\"total\":%s,\"unit\":\"%s\","
                   "\"elapsed_s\":%.3f,\"eta_s\":%s,\"tensor\":%s}",
                   name, (long long)step->done, total, sw_step_unit(step->name), step->elapsed_s,
                   eta, item);
}
