/* copy_codes.c - see copy_codes.h. */
#include "formats/checkpoint/writer/copy_codes.h"

#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/checkpoint/window.h"
#include "formats/checkpoint/writer/writer_internal.h"
#include "formats/dialect/dialect_common.h"

typedef struct carrying {
    sw_ckpt_writer *w;
    sw_claim *claim;
    sw_qspec from;
    const sw_st_tensor *tensors[SW_DIALECT_TENSORS_MAX];
    sw_copy_codes_room *room;
    int64_t n_windows;
    sw_st_stream streams[SW_DIALECT_TENSORS_MAX]; /* of the target's tensors; zero: not ours */
} carrying;

/* The tensors of one window. */
typedef struct window {
    int64_t at, n_rows;
    sw_window_cut cuts[SW_DIALECT_TENSORS_MAX];
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n;
} window;

void sw_copy_codes_free(sw_copy_codes_room *room)
{
    for (int kind = 0; kind < SW_COPY_CODES_KINDS; kind++)
        for (int i = 0; i < SW_DIALECT_TENSORS_MAX; i++) sw_mem_put(room->buffers[kind][i]);
    memset(room, 0, sizeof *room);
}

/* A buffer of at least n_bytes, with what is left in it. */
static sw_code make_room(void **out, sw_copy_codes_room *room, sw_copy_codes_kind kind, int i,
                         uint64_t n_bytes, sw_err *err)
{
    void **buffer = &room->buffers[kind][i];
    sw_code rc;

    if (room->room_bytes[kind][i] < n_bytes || !*buffer) {
        sw_mem_put(*buffer);
        *buffer = NULL;
        rc = sw_mem_get(buffer, (int64_t)n_bytes, 1, "part of a tensor", err);
        if (rc != SW_OK) return rc;
        room->room_bytes[kind][i] = n_bytes;
    }
    *out = *buffer;
    return SW_OK;
}

static window window_of(const carrying *c, const sw_dialect *dialect, const sw_qspec *spec,
                        int64_t at)
{
    window win = {.at = at, .n_rows = sw_window_rows(at, c->claim->n_out)};

    win.n = sw_window_cuts(win.cuts, win.parts, dialect, spec, c->claim->n_out, c->claim->k_in, at);
    return win;
}

/* Where the window's part lies in the file, or a copy where it lies in pieces or at an odd
 * address. A stored shape is held to the whole weight and then told of the window. */
static sw_code take_part(const void **out, const window *win, int i, const carrying *c, sw_err *err)
{
    const sw_window_cut *cut = &win->cuts[i];
    const uint8_t *whole = c->tensors[i] ? c->tensors[i]->view.data : NULL;
    const size_t elem_bytes = (size_t)sw_dtype_bits(win->parts[i].dtype) / 8;
    const sw_qtensor shape = {.n_out = win->n_rows, .k_in = c->claim->k_in};
    void *copy = NULL;
    sw_code rc;

    *out = NULL;
    if (!whole) return SW_OK;
    *out = whole + cut->offset_bytes;
    if (cut->is_shape && (rc = sw_shape_check(whole, win->parts[i].suffix, c->claim->n_out,
                                              c->claim->k_in, err)) != SW_OK)
        return rc;
    if (!cut->is_shape && cut->n_runs == 1 && (uintptr_t)*out % elem_bytes == 0) return SW_OK;
    rc = make_room(&copy, c->room, SW_COPY_CODES_READ, i, sw_window_bytes(cut), err);
    if (rc != SW_OK) return rc;
    *out = copy;
    if (cut->is_shape)
        sw_shape_store(copy, &shape);
    else
        sw_window_gather(copy, whole, cut);
    return SW_OK;
}

static sw_code read_window(sw_qtensor *q, const carrying *c, int64_t at, sw_err *err)
{
    const sw_dialect *dialect = c->w->source->dialect;
    const window win = window_of(c, dialect, &c->from, at);
    const void *data[SW_DIALECT_TENSORS_MAX] = {NULL};
    sw_code rc = SW_OK;

    for (int i = 0; i < win.n && rc == SW_OK; i++) rc = take_part(&data[i], &win, i, c, err);
    if (rc != SW_OK) return rc;
    q->n_out = win.n_rows; /* fewer than there is room for in the last */
    q->spec = c->from;
    if ((rc = dialect->decode(q, data, err)) != SW_OK) return rc;
    q->spec = c->claim->spec; /* the same weight in the target's words */
    return sw_qtensor_check(q, err);
}

/* true where one window of the tensor lies behind the other. */
static bool is_in_line(const sw_window_cut *cut) { return cut->n_runs == 1 && !cut->is_whole; }

/* Zeroed, as encode may expect: where the part leaves from, or a buffer to leave from later. */
static sw_code make_part(void **out, carrying *c, const window *win, int i, sw_err *err)
{
    uint64_t n_bytes = sw_window_bytes(&win->cuts[i]);
    sw_code rc = is_in_line(&win->cuts[i])
                     ? sw_st_stream_room(out, &c->streams[i], (size_t)n_bytes, err)
                     : make_room(out, c->room, SW_COPY_CODES_WRITTEN, i, n_bytes, err);

    if (rc == SW_OK) memset(*out, 0, n_bytes);
    return rc;
}

/* Windows in line leave one by one; others wait until the tensor is complete. */
static sw_code put_part(carrying *c, const window *win, int i, void *part, sw_err *err)
{
    const sw_window_cut *cut = &win->cuts[i];
    const sw_qtensor shape = {.n_out = c->claim->n_out, .k_in = c->claim->k_in};
    uint64_t n_bytes = sw_window_bytes(cut);
    void *whole = NULL;
    sw_code rc;

    if (is_in_line(cut)) return sw_st_stream_put(&c->streams[i], (size_t)n_bytes, err);
    if ((cut->is_whole && win->at) || !c->streams[i].w) return SW_OK;
    if (cut->is_shape) sw_shape_store(part, &shape);
    if (cut->is_whole) return sw_st_stream_add(&c->streams[i], part, (size_t)n_bytes, err);
    n_bytes = (uint64_t)cut->n_runs * cut->step_bytes;
    if ((rc = make_room(&whole, c->room, SW_COPY_CODES_WHOLE, i, n_bytes, err)) != SW_OK) return rc;
    sw_window_scatter(whole, part, cut);
    if (win->at < c->n_windows - 1) return SW_OK;
    return sw_st_stream_add(&c->streams[i], whole, (size_t)n_bytes, err);
}

static sw_code write_window(carrying *c, const sw_qtensor *q, int64_t at, sw_err *err)
{
    const window win = window_of(c, c->w->dialect, &c->claim->spec, at);
    void *parts[SW_DIALECT_TENSORS_MAX] = {NULL};
    sw_code rc = SW_OK;

    for (int i = 0; i < win.n && rc == SW_OK; i++) rc = make_part(&parts[i], c, &win, i, err);
    if (rc == SW_OK) rc = c->w->dialect->encode(parts, q, err);
    for (int i = 0; i < win.n && rc == SW_OK; i++) rc = put_part(c, &win, i, parts[i], err);
    return rc;
}

static sw_code open_streams(carrying *c, sw_err *err)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n = c->w->dialect->declare(parts, &c->claim->spec, c->claim->n_out, c->claim->k_in);
    sw_code rc = SW_OK;

    for (int i = 0; i < n && rc == SW_OK; i++) {
        char name[SW_PART_NAME_BYTES];
        if (parts[i].is_shape && c->w->has_shapes) continue;
        if ((rc = sw_part_name(name, c->claim->module_path, parts[i].suffix, err)) == SW_OK)
            rc = sw_st_stream_open(&c->streams[i], c->w->st, name, err);
    }
    return rc;
}

static sw_code end_streams(carrying *c, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int i = 0; i < SW_DIALECT_TENSORS_MAX && rc == SW_OK; i++) {
        uint64_t n_bytes = 0;
        if (c->streams[i].w) rc = sw_st_stream_end(&n_bytes, &c->streams[i], err);
        if (rc != SW_OK) return rc;
#pragma omp atomic
        c->w->encoded_bytes += n_bytes;
    }
    c->claim->is_put = true;
    return SW_OK;
}

static void want(const carrying *c)
{
    for (int i = 0; i < SW_DIALECT_TENSORS_MAX; i++)
        if (c->tensors[i]) sw_st_want_tensor(c->w->source->st, c->tensors[i]);
}

static void forget(const carrying *c)
{
    for (int i = 0; i < SW_DIALECT_TENSORS_MAX; i++)
        if (c->tensors[i]) sw_st_forget_tensor(c->w->source->st, c->tensors[i]);
}

/* false: this linear has to go whole. */
static bool plan(carrying *c, sw_err *err)
{
    const sw_ckpt_writer *w = c->w;
    const sw_claim *claim = c->claim;

    if (!w->source->dialect || w->resume.is_on || sw_claim_is_shared(claim) ||
        w->source->model.arch->has_transposed_linears ||
        sw_checkpoint_stored_spec(&c->from, w->source, claim->module_path, claim->n_out,
                                  claim->k_in, err) != SW_OK ||
        sw_checkpoint_parts(c->tensors, w->source, claim->module_path, &c->from, claim->n_out,
                            claim->k_in, err) != SW_OK)
        return false;
    for (int i = 0; i < SW_DIALECT_TENSORS_MAX; i++)
        if (c->tensors[i] && !c->tensors[i]->view.data) return false;
    c->n_windows = sw_window_count(w->source->dialect, &c->from, claim->n_out, claim->k_in);
    return c->n_windows &&
           sw_window_count(w->dialect, &claim->spec, claim->n_out, claim->k_in) == c->n_windows;
}

sw_code sw_ckpt_writer_copy_codes(bool *is_done, sw_ckpt_writer *w, const char *module_path,
                                  sw_copy_codes_room *room, sw_err *err)
{
    carrying c = {.w = w, .claim = sw_claim_find(w, module_path), .room = room};
    sw_err ignored = {0}, *said = &ignored; /* of a window; said again of the whole */
    sw_qtensor q = {0};
    sw_code rc;

    *is_done = false;
    if (!c.claim || c.claim->is_put || !plan(&c, said)) return SW_OK;
    want(&c);
    rc = sw_qtensor_alloc(&q, &c.from, SW_WINDOW_ROWS, c.claim->k_in, said);
    if (rc == SW_OK) rc = open_streams(&c, said);
    for (int64_t i = 0; i < c.n_windows && rc == SW_OK; i++) {
        rc = read_window(&q, &c, i, said);
        if (rc == SW_OK && q.g_idx && !w->qconfig.desc_act)
            rc = SW_FAIL(said, SW_E_BUG, "a g_idx that the checkpoint does not announce");
        if (rc == SW_OK) rc = write_window(&c, &q, i, said);
    }
    sw_qtensor_free(&q);
    if (rc == SW_OK) rc = end_streams(&c, said);
    for (int i = 0; i < SW_DIALECT_TENSORS_MAX; i++) sw_st_stream_close(&c.streams[i]);
    forget(&c);
    *is_done = rc == SW_OK;
    if (rc != SW_E_IO && rc != SW_E_NOMEM) return SW_OK;
    return SW_FAIL(err, rc, "%s: %s", module_path, said->text);
}
