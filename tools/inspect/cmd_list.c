/* cmd_list.c - `swage list`: every table of the program, for people, for JSON and for the README.
 *
 * A table is a row here: its columns and a function that fills the cells of line i from the
 * table in the code. Nothing is spelled twice, so what is listed is what there is.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/dialect/dialect.h"
#include "formats/model/model.h"
#include "formats/pack/words.h"
#include "kernels/device.h"
#include "kernels/kernel.h"
#include "quant/method/algo.h"
#include "quant/run/scheme.h"
#include "tools/cli/cmd.h"
#include "tools/convert/conversion_table.h"
#include "tools/recipe/presets.h"
#include "tools/terminal/table.h"

#define COLUMNS_MAX 5
#define CELL_BYTES SW_CELL_BYTES

typedef sw_cells cells;

typedef struct listing {
    const char *name;
    const char *columns[COLUMNS_MAX + 1];
    bool (*row)(cells out, int i); /* false beyond the end */
} listing;

static void put(char out[CELL_BYTES], const char *text)
{
    (void)snprintf(out, CELL_BYTES, "%s", text);
}

static void put_group(char out[CELL_BYTES], int64_t group_elems)
{
    if (group_elems)
        (void)snprintf(out, CELL_BYTES, "%lld", (long long)group_elems);
    else
        put(out, "channel");
}

static void put_scope(char out[CELL_BYTES], const sw_qspec *spec)
{
    if (spec->scale_rows == SW_ROWS_ALL)
        put(out, "tensor");
    else if (spec->scale_rows > 1)
        (void)snprintf(out, CELL_BYTES, "%lld x %lld", (long long)spec->scale_rows,
                       (long long)spec->group_elems);
    else
        put_group(out, spec->group_elems);
}

static bool scheme_row(cells out, int i)
{
    const sw_scheme *s = &sw_schemes[i];
    char inputs[48];

    if (i >= sw_n_schemes) return false;
    put(out[0], s->name);
    (void)snprintf(out[1], CELL_BYTES, "%s%s", s->spec.num->name,
                   s->spec.is_symmetric ? "" : " + zero");
    put_scope(out[2], &s->spec);
    put(out[3], sw_act_text(inputs, &s->spec.act));
    put(out[4], s->summary);
    return true;
}

static bool method_row(cells out, int i)
{
    if (i >= sw_n_algos) return false;
    put(out[0], sw_algos[i].name);
    put(out[1], sw_algos[i].needs_statistics ? "yes" : "no");
    put(out[2], sw_algos[i].summary);
    return true;
}

static bool format_row(cells out, int i)
{
    const sw_dialect *d = sw_dialects[i];

    if (!d) return false;
    put(out[0], d->name);
    put(out[1], sw_dtype_name(d->scale_dtype(SW_DTYPE_F16)));
    put(out[2], sw_dtype_name(d->scale_dtype(SW_DTYPE_BF16)));
    put(out[3], d->summary);
    return true;
}

/* Plain floats are a target for all. */
static bool conversion_row(cells out, int i)
{
    if (!sw_conversion_dialects[i]) return false;
    put(out[0], sw_conversion_dialects[i]->name);
    sw_conversion_lists(out + 1, i);
    return true;
}

static bool packing_row(cells out, int i)
{
    if (i >= SW_PACK_COUNT) return false;
    put(out[0], sw_packs[i].name);
    put(out[1], sw_packs[i].summary);
    return true;
}

static bool number_row(cells out, int i)
{
    if (i >= SW_NUM_COUNT) return false;
    put(out[0], sw_nums[i].name);
    (void)snprintf(out[1], CELL_BYTES, "%d", sw_nums[i].bits);
    (void)snprintf(out[2], CELL_BYTES, "0..%d", sw_nums[i].code_max);
    (void)snprintf(out[3], CELL_BYTES, "%d", sw_nums[i].sym_zero);
    return true;
}

static const char *const op_names[SW_GEMM_OP_COUNT] = {
    [SW_GEMM_DENSE] = "dense", [SW_GEMM_W4A16] = "W4A16", [SW_GEMM_W8A16] = "W8A16",
    [SW_GEMM_W4A8] = "W4A8", [SW_GEMM_W8A8] = "W8A8",
    [SW_GEMM_FP4A16] = "FP4A16", [SW_GEMM_FP8A16] = "FP8A16"};

/* Those of the device are compared with references of their own, which make gpu-test runs. */
static bool gpu_kernel_row(cells out, int i)
{
    const sw_device_kernel *k = &sw_device_kernels[i];
    const char *lack = !sw_device_is_built() ? " (not in this build)"
                       : !sw_device_count()  ? " (none here)"
                                             : "";

    if (i >= sw_n_device_kernels) return false;
    put(out[0], k->name);
    put(out[1], k->ops);
    (void)snprintf(out[2], CELL_BYTES, "CUDA %d.%d%s%s", k->sm_min / 10, k->sm_min % 10,
                   k->sm_max == SW_DEVICE_SM_ANY ? " or later" : "", lack);
    put(out[3], "-");
    return true;
}

/* The processor's, then the device's. */
static bool kernel_row(cells out, int i)
{
    const sw_kernel *k = &sw_kernels[i];

    if (i >= sw_n_kernels) return gpu_kernel_row(out, i - sw_n_kernels);
    put(out[0], k->name);
    put(out[1], op_names[k->op]);
    put(out[2], k->isa);
    (void)snprintf(out[3], CELL_BYTES, "%g", k->tolerance);
    return true;
}

static bool architecture_row(cells out, int i)
{
    if (i >= sw_n_archs) return false;
    put(out[0], sw_archs[i].name);
    put(out[1], sw_archs[i].hf_class);
    put(out[2], sw_archs[i].notes);
    return true;
}

static bool recipe_row(cells out, int i)
{
    if (i >= sw_n_presets) return false;
    put(out[0], sw_presets[i].name);
    put(out[1], sw_presets[i].why);
    put(out[2], sw_presets[i].families);
    put(out[3], sw_presets[i].text);
    return true;
}

static const listing listings[] = {
    {"schemes", {"scheme", "weights", "group", "inputs", "summary"}, scheme_row},
    {"methods", {"method", "calibration", "summary"}, method_row},
    {"recipes", {"recipe", "why", "families", "text"}, recipe_row},
    {"formats", {"format", "scales (F16 model)", "scales (BF16 model)", "summary"},
     format_row},
    {"conversions", {"from", "exact to", "exact for some schemes", "rounded again", "never"},
     conversion_row},
    {"packings", {"packing", "order"}, packing_row},
    {"numbers", {"number", "bits", "codes", "zero when symmetric"}, number_row},
    {"kernels", {"kernel", "operation", "needs", "tolerance"}, kernel_row},
    {"architectures", {"model_type", "class", "notes"}, architecture_row},
};

#define N_LISTINGS ((int)(sizeof listings / sizeof listings[0]))

static const char *listing_name(int i) { return i < N_LISTINGS ? listings[i].name : NULL; }

static int n_columns(const listing *l)
{
    int n = 0;

    while (n < COLUMNS_MAX && l->columns[n]) n++;
    return n;
}

static void print_markdown(const listing *l)
{
    int n = n_columns(l);
    cells row;

    for (int c = 0; c < n; c++) (void)printf("| %s ", l->columns[c]);
    (void)puts("|");
    for (int c = 0; c < n; c++) (void)fputs("|---", stdout);
    (void)puts("|");
    for (int i = 0; l->row(row, i); i++) {
        for (int c = 0; c < n; c++)
            (void)printf(c ? "| %s " : "| `%s` ", row[c]);
        (void)puts("|");
    }
}

static bool table_row(const void *self, int64_t i, sw_cells out)
{
    return ((const listing *)self)->row(out, (int)i);
}

static void print_plain(const listing *l)
{
    sw_table table = {.n_columns = n_columns(l), .self = l, .row = table_row};

    for (int c = 0; c < table.n_columns; c++) table.headings[c] = l->columns[c];
    sw_table_print(stdout, &table, sw_terminal_columns(STDOUT_FILENO));
}

/* "scales (F16 model)" becomes "scales_f16_model". */
static void column_key(char out[CELL_BYTES], const char *column)
{
    size_t n = 0;

    for (const char *p = column; *p && n + 1 < CELL_BYTES; p++) {
        if (isalnum((unsigned char)*p))
            out[n++] = (char)tolower((unsigned char)*p);
        else if (n && out[n - 1] != '_')
            out[n++] = '_';
    }
    while (n && out[n - 1] == '_') n--;
    out[n] = '\0';
}

static bool add_cell(cJSON *entry, const char *column, const char *cell)
{
    char key[CELL_BYTES];
    char *end;
    double number = strtod(cell, &end);

    column_key(key, column);
    return *end ? cJSON_AddStringToObject(entry, key, cell) != NULL
                : cJSON_AddNumberToObject(entry, key, number) != NULL;
}

static sw_code add_json(cJSON *object, const listing *l, sw_err *err)
{
    cJSON *rows = cJSON_AddArrayToObject(object, l->name);
    int n = n_columns(l);
    cells row;

    if (!rows) return sw_cmd_json_added(NULL, err);
    for (int i = 0; l->row(row, i); i++) {
        cJSON *entry = cJSON_CreateObject();
        bool ok = entry && cJSON_AddItemToArray(rows, entry);
        for (int c = 0; ok && c < n; c++)
            ok = add_cell(entry, l->columns[c], row[c]);
        if (!ok) return sw_cmd_json_added(NULL, err);
    }
    return SW_OK;
}

typedef struct list_options {
    sw_cmd_common common;
    int markdown;
} list_options;

static const sw_opt options[] = {
    {.name = "markdown", .group = SW_OPT_COMMON, .kind = SW_OPT_FLAG,
     .offset = offsetof(list_options, markdown), .set_to = 1,
     .help = "print the tables as Markdown"},
    SW_CMD_COMMON_ROWS,
    {0},
};

static sw_code run_list(sw_run *run, sw_err *err)
{
    const list_options *o = run->options;
    const char *only = run->n_args ? run->args[0] : NULL;
    cJSON *object = NULL;
    sw_code rc = SW_OK;
    bool found = false;

    if (o->common.json && (rc = sw_cmd_json_new(&object, "list", err)) != SW_OK) return rc;
    for (int i = 0; i < N_LISTINGS && rc == SW_OK; i++) {
        const listing *l = &listings[i];
        if (only && strcmp(only, l->name) != 0) continue;
        if (o->common.json) {
            rc = add_json(object, l, err);
        } else {
            if (!only) (void)printf(o->markdown ? "%s### %s\n\n" : "%s%s\n", found ? "\n" : "",
                                    l->name);
            (o->markdown ? print_markdown : print_plain)(l);
        }
        found = true;
    }
    if (rc == SW_OK && !found) rc = sw_opt_unknown("list", only, listing_name, err);
    if (rc == SW_OK && o->common.json) rc = sw_cmd_json_print(run, object, err);
    cJSON_Delete(object);
    return rc;
}

static const char *const examples[] = {
    "swage list", "swage list recipes", "swage list kernels --json",
    "swage list formats --markdown", NULL};

const sw_cmd sw_cmd_list = {
    .name = "list",
    .args = "[TABLE]",
    .summary = "list what this build supports: schemes, recipes, formats, kernels, models",
    .options = options,
    .options_bytes = sizeof(list_options),
    .max_args = 1,
    .words = listing_name,
    .examples = examples,
    .run = run_list,
};
