/* gguf_rows.h - orders of rows in which GGUF files differ from the models.
 *
 * Each makes a list: for every row of a piece of the file the row of the model's tensor. Lists are
 * made once for all layers that share them.
 */
#ifndef SW_FORMATS_GGUF_GGUF_ROWS_H
#define SW_FORMATS_GGUF_GGUF_ROWS_H

#include "formats/base/mem.h"

typedef enum sw_gguf_rows_kind {
    SW_GGUF_ROWS_PAIRS,    /* heads of `width` rows of which the first `part` turn: their halves
                            * interleaved */
    SW_GGUF_ROWS_HEADS,    /* behind `first` rows, `groups` times `per` heads of `width` rows: first
                            * the first of each group, then the second, ... */
    SW_GGUF_ROWS_QKV,      /* `groups` of `per` heads of queries, one of keys, one of values, each
                            * of `width` rows: all queries, all keys, all values */
    SW_GGUF_ROWS_DELTA_QKV, /* `groups` of a query and a key of `part` rows and `per` values and
                            * `per` gates of `width` rows: queries, keys, values */
    SW_GGUF_ROWS_DELTA_Z,  /* the gates of those */
    SW_GGUF_ROWS_TAIL      /* of each of `groups` heads of part + width rows the last `width` */
} sw_gguf_rows_kind;

typedef struct sw_gguf_order_of {
    sw_gguf_rows_kind kind;
    int64_t n_rows; /* of the piece */
    int64_t first, groups, per, width, part;
} sw_gguf_order_of;

#define SW_GGUF_ORDERS_MAX 16
typedef struct sw_gguf_orders {
    struct {
        sw_gguf_order_of of;
        int32_t *rows;
    } made[SW_GGUF_ORDERS_MAX];
    int n;
} sw_gguf_orders;

/* Taken from the arena. */
sw_code sw_gguf_order_rows(const int32_t **out, sw_gguf_orders *orders, const sw_gguf_order_of *of,
                           sw_arena *arena, sw_err *err) SW_MUST_USE;

#endif
