/* cuda_link.c - arrays of CUDA devices on their way between ranks.
 *
 * Devices of one host that see each other's memory copy from a window that each rank has: the
 * array goes into it part by part, and who gets it copies it out; the team carries words alone. All
 * other devices send through memory of the host.
 */
#include "quant/backend/cuda/cuda.h"

#include "formats/base/size.h"
#include "quant/team/team.h"

#define WINDOW_BYTES ((int64_t)128 << 20)
#define BUFFER_BYTES ((int64_t)8 << 20)

typedef struct cuda_link {
    sw_device *gpu;
    sw_team *team;
    void *d_own;    /* this rank's window, NULL: none */
    void **d_peers; /* [ranks] the others' */
    bool has_windows; /* every rank has those of all others */
    uint8_t *buffer;  /* of memory, else: [2, BUFFER_BYTES] of what leaves and of what comes */
} cuda_link;

typedef struct card {
    bool has_window;
    uint8_t name[SW_DEVICE_WINDOW_NAME_BYTES];
} card;

/* Windows of all others; *all: there are, at every rank. */
static sw_code open_peers(cuda_link *l, const card *mine, bool *all, sw_err *err)
{
    const int me = sw_team_rank(l->team), n = sw_team_size(l->team);
    bool can = mine->has_window;
    sw_code rc = SW_OK;

    for (int rank = 0; rank < n && rc == SW_OK; rank++) {
        card theirs = *mine;
        rc = sw_team_broadcast(l->team, rank, &theirs, sizeof theirs, err);
        if (rc == SW_OK && rank != me)
            can = can && theirs.has_window &&
                  sw_device_window_open(&l->d_peers[rank], l->gpu, theirs.name);
    }
    *all = can;
    for (int rank = 0; rank < n && rc == SW_OK; rank++) {
        bool theirs = can;
        rc = sw_team_broadcast(l->team, rank, &theirs, sizeof theirs, err);
        *all = *all && theirs;
    }
    return rc;
}

sw_code sw_cuda_link_new(void **link, const sw_place *at, sw_team *team, sw_err *err)
{
    card mine = {false};
    cuda_link *l = NULL;
    sw_code rc = SW_MEM_GET(&l, 1, "link", err);

    *link = NULL;
    if (rc != SW_OK) return rc;
    l->gpu = sw_cuda_gpu(at);
    l->team = team;
    if ((rc = SW_MEM_GET(&l->d_peers, sw_team_size(team), "link", err)) == SW_OK) {
        mine.has_window = sw_device_window_new(&l->d_own, mine.name, l->gpu, WINDOW_BYTES);
        rc = open_peers(l, &mine, &l->has_windows, err);
    }
    if (rc == SW_OK && !l->has_windows)
        rc = SW_MEM_GET(&l->buffer, 2 * BUFFER_BYTES, "sums of other ranks", err);
    if (rc == SW_OK) *link = l;
    else sw_cuda_link_free(l, false);
    return rc;
}

/* Nobody frees a window that another rank has open. */
void sw_cuda_link_free(void *link, bool is_well)
{
    cuda_link *l = link;
    sw_err ignored = {0};

    if (!l) return;
    for (int rank = 0; l->d_peers && rank < sw_team_size(l->team); rank++)
        sw_device_window_close(l->gpu, l->d_peers[rank]);
    if (is_well) (void)!sw_team_barrier(l->team, &ignored);
    sw_device_window_free(l->gpu, l->d_own);
    sw_mem_put(l->d_peers);
    sw_mem_put(l->buffer);
    sw_mem_put(l);
}

/* A word from each rank that is to hear of a part, or to it. */
static sw_code tell(const cuda_link *l, int to, sw_err *err)
{
    const uint8_t word = 1;
    sw_code rc = SW_OK;

    for (int rank = 0; rank < sw_team_size(l->team) && rc == SW_OK; rank++)
        if (rank != sw_team_rank(l->team) && (to < 0 || to == rank))
            rc = sw_team_send(l->team, rank, &word, sizeof word, err);
    return rc;
}

static sw_code hear(const cuda_link *l, int from, sw_err *err)
{
    sw_code rc = SW_OK;
    uint8_t word;

    for (int rank = 0; rank < sw_team_size(l->team) && rc == SW_OK; rank++)
        if (rank != sw_team_rank(l->team) && (from < 0 || from == rank))
            rc = sw_team_receive(l->team, rank, &word, sizeof word, err);
    return rc;
}

static sw_code send_part(const cuda_link *l, const char *d_from, int64_t n, int to, sw_err *err)
{
    sw_code rc;

    if (l->has_windows) {
        rc = sw_device_window_copy(l->gpu, l->d_own, d_from, n, err);
        if (rc == SW_OK) rc = tell(l, to, err);
        return rc == SW_OK ? hear(l, to, err) : rc;
    }
    if ((rc = sw_device_download(l->gpu, l->buffer, d_from, n, err)) != SW_OK) return rc;
    return to >= 0 ? sw_team_send(l->team, to, l->buffer, (size_t)n, err)
                   : sw_team_broadcast(l->team, sw_team_rank(l->team), l->buffer, (size_t)n, err);
}

static sw_code receive_part(const cuda_link *l, char *d_to, int64_t n, int from, bool is_for_all,
                            sw_err *err)
{
    sw_code rc;

    if (l->has_windows) {
        rc = hear(l, from, err);
        if (rc == SW_OK)
            rc = sw_device_window_copy(l->gpu, d_to, l->d_peers[from], n, err);
        return rc == SW_OK ? tell(l, from, err) : rc;
    }
    rc = is_for_all ? sw_team_broadcast(l->team, from, l->buffer, (size_t)n, err)
                    : sw_team_receive(l->team, from, l->buffer, (size_t)n, err);
    return rc == SW_OK ? sw_device_upload(l->gpu, d_to, l->buffer, n, err) : rc;
}

/* One part each way. */
typedef struct both_ways {
    int to, from;
    const char *d_out;
    char *d_in;
    int64_t n_out, n_in;
} both_ways;

/* What leaves is in the window before the other side is told, and stays there until that has said
 * that it has a copy. */
static sw_code exchange_by_windows(const cuda_link *l, const both_ways *p, sw_err *err)
{
    sw_code rc = SW_OK;

    if (p->n_out) {
        rc = sw_device_window_copy(l->gpu, l->d_own, p->d_out, p->n_out, err);
        if (rc == SW_OK) rc = tell(l, p->to, err);
    }
    if (rc == SW_OK && p->n_in && (rc = hear(l, p->from, err)) == SW_OK) {
        rc = sw_device_window_copy(l->gpu, p->d_in, l->d_peers[p->from], p->n_in, err);
        if (rc == SW_OK) rc = tell(l, p->from, err);
    }
    return rc == SW_OK && p->n_out ? hear(l, p->to, err) : rc;
}

static sw_code exchange_part(const cuda_link *l, const both_ways *p, sw_err *err)
{
    uint8_t *out = l->buffer, *in = l->buffer ? l->buffer + BUFFER_BYTES : NULL;
    sw_code rc = SW_OK;

    if (l->has_windows) return exchange_by_windows(l, p, err);
    if (p->n_out) rc = sw_device_download(l->gpu, out, p->d_out, p->n_out, err);
    if (rc != SW_OK) return rc;
    if (p->n_out && p->n_in)
        rc = sw_team_exchange(l->team, p->to, out, (size_t)p->n_out, p->from, in, (size_t)p->n_in,
                              err);
    else if (p->n_out)
        rc = sw_team_send(l->team, p->to, out, (size_t)p->n_out, err);
    else
        rc = sw_team_receive(l->team, p->from, in, (size_t)p->n_in, err);
    return rc == SW_OK && p->n_in ? sw_device_upload(l->gpu, p->d_in, in, p->n_in, err) : rc;
}

static int64_t part_bytes(const cuda_link *l)
{
    return l->has_windows ? WINDOW_BYTES : BUFFER_BYTES;
}

sw_code sw_cuda_link_send(void *link, const void *array, int64_t n_bytes, int to, sw_err *err)
{
    const cuda_link *l = link;
    const int64_t step = part_bytes(l);
    sw_code rc = SW_OK;

    for (int64_t at = 0; at < n_bytes && rc == SW_OK; at += step)
        rc = send_part(l, (const char *)array + at, sw_min_i64(step, n_bytes - at), to, err);
    return rc;
}

sw_code sw_cuda_link_receive(void *link, void *array, int64_t n_bytes, int from, bool is_for_all,
                             sw_err *err)
{
    const cuda_link *l = link;
    const int64_t step = part_bytes(l);
    sw_code rc = SW_OK;

    for (int64_t at = 0; at < n_bytes && rc == SW_OK; at += step)
        rc = receive_part(l, (char *)array + at, sw_min_i64(step, n_bytes - at), from, is_for_all,
                          err);
    return rc;
}

sw_code sw_cuda_link_exchange(void *link, int to, const void *out, int64_t n_out_bytes, int from,
                              void *in, int64_t n_in_bytes, sw_err *err)
{
    const cuda_link *l = link;
    const int64_t step = part_bytes(l);
    sw_code rc = SW_OK;

    for (int64_t at = 0; (at < n_out_bytes || at < n_in_bytes) && rc == SW_OK; at += step) {
        both_ways part = {.to = to, .from = from,
                          .n_out = sw_min_i64(step, sw_max_i64(0, n_out_bytes - at)),
                          .n_in = sw_min_i64(step, sw_max_i64(0, n_in_bytes - at))};

        if (part.n_out) part.d_out = (const char *)out + at;
        if (part.n_in) part.d_in = (char *)in + at;
        rc = exchange_part(l, &part, err);
    }
    return rc;
}
