/* pickle_internal.h - what the files of the unpickler share. Not for others. */
#ifndef SW_FORMATS_PICKLE_PICKLE_INTERNAL_H
#define SW_FORMATS_PICKLE_PICKLE_INTERNAL_H

#include "formats/pickle/pickle.h"

#define SW_PICKLE_ITEMS_MAX ((int64_t)2000000) /* of all containers; a tensor counts as eight */
#define SW_PICKLE_MEMO_MAX ((int64_t)2000000)
#define SW_PICKLE_STACK_MAX ((int64_t)1 << 20)

typedef enum sw_pk_kind {
    SW_PK_NONE, SW_PK_BOOL, SW_PK_INT, SW_PK_REAL,
    SW_PK_TEXT,    /* or bytes */
    SW_PK_LIST, SW_PK_TUPLE,
    SW_PK_DICT,    /* items: key, value, key, ... */
    SW_PK_NAME,    /* a function or type of the table */
    SW_PK_STORAGE, SW_PK_TENSOR
} sw_pk_kind;

typedef struct sw_pk_name sw_pk_name;

typedef struct sw_pk_value {
    sw_pk_kind kind;
    uint32_t text_bytes;
    union {
        int64_t number;           /* INT, BOOL */
        const char *text;         /* in the pickle, not terminated */
        struct sw_pk_items *items;
        const sw_pk_name *name;
        const struct sw_pk_storage *storage;
        struct sw_pk_tensor *tensor;
    } is;
} sw_pk_value;

typedef struct sw_pk_items {
    sw_pk_value *at;
    int64_t n, room;
} sw_pk_items;

typedef struct sw_pk_storage {
    sw_pk_value key; /* a TEXT */
    const sw_pk_name *type;
    int64_t n_elems; /* of the type */
} sw_pk_storage;

typedef struct sw_pk_tensor {
    sw_pickle_tensor view; /* without a name */
    bool is_listed;
} sw_pk_tensor;

typedef struct sw_pk_vm {
    const unsigned char *at, *end;
    sw_pk_value *stack;
    int64_t n_stack, room_stack;
    int64_t *marks; /* heights of the stack */
    int64_t n_marks, room_marks;
    sw_pk_value *memo;
    bool *is_kept; /* per memo slot */
    int64_t n_memo, n_puts;
    int64_t n_items, n_tensors;
    bool is_done;
    sw_arena *arena;
    sw_err *err;
} sw_pk_vm;

/* SW_E_FORMAT once more than SW_PICKLE_ITEMS_MAX values were counted: a few bytes of a pickle make
 * a large object, over and over. */
sw_code sw_pk_count(sw_pk_vm *vm, int64_t n) SW_MUST_USE;
/* A fresh container with room for n items. */
sw_code sw_pk_items_new(sw_pk_items **out, sw_pk_vm *vm, int64_t n) SW_MUST_USE;

/* The name of the table that "module name" is; refuses all others. */
sw_code sw_pk_name_find(const sw_pk_name **out, sw_pk_vm *vm, const char *module,
                        size_t module_bytes, const char *name, size_t name_bytes) SW_MUST_USE;
/* What calling it with a tuple of arguments gives. */
sw_code sw_pk_call(sw_pk_value *out, sw_pk_vm *vm, const sw_pk_name *name,
                   const sw_pk_items *args) SW_MUST_USE;
/* A storage out of the tuple ("storage", type, key, location, n_elems). */
sw_code sw_pk_storage_make(sw_pk_value *out, sw_pk_vm *vm, const sw_pk_value *id) SW_MUST_USE;
/* The tensors of what was built. */
sw_code sw_pk_list(sw_pickle_tensor **out, int64_t *n_out, sw_pk_vm *vm,
                   const sw_pk_value *root) SW_MUST_USE;

#endif
