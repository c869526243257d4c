/* cmd_doctor.c - `swage doctor`: what this machine offers, what is wrong, and what to do. */
#include <stdio.h>
#include <unistd.h>

#include "tools/cli/cmd.h"
#include "tools/doctor/doctor.h"

static const sw_opt options[] = {SW_CMD_COMMON_ROWS, {0}};

/* Only what is wrong under --quiet. */
static void print_text(const sw_doctor *d, const sw_cmd_common *o)
{
    static const sw_color colors[SW_HEALTH_COUNT] = {SW_GREEN, SW_YELLOW, SW_RED};
    const bool has_colors = sw_terminal_has_colors(o->color, STDOUT_FILENO);

    for (int i = 0; i < d->n; i++) {
        const sw_finding *f = &d->at[i];
        if (o->quiet && f->health == SW_HEALTH_OK) continue;
        (void)printf("%s%-8s%s%-12s%s\n", sw_color_on(colors[f->health], has_colors),
                     sw_health_name(f->health), sw_color_off(has_colors), f->name, f->text);
        if (f->remedy[0]) (void)printf("%20s-> %s\n", "", f->remedy);
    }
    if (!o->quiet)
        (void)printf("\n%d ok, %d warnings, %d faults\n", d->n_of[SW_HEALTH_OK],
                     d->n_of[SW_HEALTH_WARNING], d->n_of[SW_HEALTH_FAULT]);
}

static bool add_finding(cJSON *list, const sw_finding *f)
{
    cJSON *row = cJSON_CreateObject();

    if (!row || !cJSON_AddItemToArray(list, row)) return false;
    return cJSON_AddStringToObject(row, "name", f->name) &&
           cJSON_AddStringToObject(row, "health", sw_health_name(f->health)) &&
           cJSON_AddStringToObject(row, "text", f->text) &&
           (!f->remedy[0] || cJSON_AddStringToObject(row, "remedy", f->remedy));
}

static sw_code print_json(sw_run *run, const sw_doctor *d, sw_err *err)
{
    cJSON *object = NULL, *list;
    sw_code rc = sw_cmd_json_new(&object, "doctor", err);

    if (rc != SW_OK) return rc;
    list = cJSON_AddArrayToObject(object, "findings");
    for (int i = 0; list && i < d->n; i++)
        if (!add_finding(list, &d->at[i])) list = NULL;
    if (!list || !cJSON_AddNumberToObject(object, "warnings", d->n_of[SW_HEALTH_WARNING]) ||
        !cJSON_AddNumberToObject(object, "faults", d->n_of[SW_HEALTH_FAULT]))
        rc = sw_cmd_json_added(NULL, err);
    if (rc == SW_OK) rc = sw_cmd_json_print(run, object, err);
    cJSON_Delete(object);
    return rc;
}

static const char *first_fault(const sw_doctor *d)
{
    for (int i = 0; i < d->n; i++)
        if (d->at[i].health == SW_HEALTH_FAULT) return d->at[i].text;
    return "";
}

static sw_code run_doctor(sw_run *run, sw_err *err)
{
    const sw_cmd_common *o = run->options;
    sw_doctor *d = NULL;
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&d, run->arena, 1, err)) != SW_OK) return rc;
    sw_probe_cpu(d);
    sw_probe_threads(d);
    sw_probe_libraries(d);
    sw_probe_cuda(d);
    sw_probe_memory(d);
    sw_probe_disk(d);
    if (o->json) {
        rc = print_json(run, d, err);
    } else {
        print_text(d, o);
        run->has_result = true;
    }
    if (rc == SW_OK && d->n_of[SW_HEALTH_FAULT])
        rc = SW_FAIL(err, SW_E_GATE, "%d fault%s; the first: %.400s", d->n_of[SW_HEALTH_FAULT],
                     d->n_of[SW_HEALTH_FAULT] > 1 ? "s" : "", first_fault(d));
    return rc;
}

static const char *const examples[] = {"swage doctor", "swage doctor --json", "swage doctor -q",
                                       NULL};

const sw_cmd sw_cmd_doctor = {
    .name = "doctor",
    .args = "",
    .summary = "look at this machine: processor, kernels, libraries, card, memory, disk",
    .more = "Each line is ok, a warning (slower or smaller than it could be) or a fault (it does\n"
            "not work), the last two with a remedy. The exit code is 0 without a fault, also with\n"
            "warnings, and 1 with one. --quiet prints what is wrong and nothing else.\n",
    .options = options,
    .options_bytes = sizeof(sw_cmd_common),
    .examples = examples,
    .run = run_doctor,
};
