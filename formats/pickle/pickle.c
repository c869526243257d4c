/* pickle.c - see pickle.h: the stack machine. One row of the table per operation; the operations
 * that PyTorch and others write in protocols 2 to 5, without those that make objects of classes.
 */
#include <string.h>

#include "formats/base/size.h"
#include "formats/pickle/pickle_internal.h"

typedef sw_code (*op_fn)(sw_pk_vm *vm);

static sw_code take(const unsigned char **out, sw_pk_vm *vm, uint64_t n)
{
    if (n > (uint64_t)(vm->end - vm->at))
        return SW_FAIL(vm->err, SW_E_FORMAT, "the pickle ends inside an operation");
    *out = vm->at;
    vm->at += n;
    return SW_OK;
}

/* The unsigned number of n_bytes (1 to 8) that comes next. */
static sw_code take_number(uint64_t *out, sw_pk_vm *vm, int n_bytes)
{
    unsigned char wide[8] = {0};
    const unsigned char *p = NULL;
    sw_code rc = take(&p, vm, (uint64_t)n_bytes);

    if (rc != SW_OK) return rc;
    memcpy(wide, p, (size_t)n_bytes);
    *out = sw_load_le64(wide);
    return SW_OK;
}

/* Room for one more of `elem_bytes`; what was there moves. */
static sw_code grow(void **array, int64_t *room, int64_t n, size_t elem_bytes, int64_t most,
                    const char *what, sw_pk_vm *vm)
{
    int64_t more = *room ? 2 * *room : 256;
    void *grown = NULL;
    sw_code rc;

    if (n < *room) return SW_OK;
    if (n >= most)
        return SW_FAIL(vm->err, SW_E_FORMAT, "the pickle asks for more than %lld %s",
                       (long long)most, what);
    while (more <= n) more *= 2;
    if ((rc = sw_mem_get(&grown, more, elem_bytes, what, vm->err)) != SW_OK) return rc;
    if (*room) memcpy(grown, *array, (size_t)*room * elem_bytes);
    sw_mem_put(*array);
    *array = grown;
    *room = more;
    return SW_OK;
}

static sw_code push(sw_pk_vm *vm, sw_pk_value v)
{
    sw_code rc = grow((void **)&vm->stack, &vm->room_stack, vm->n_stack, sizeof *vm->stack,
                      SW_PICKLE_STACK_MAX, "values on the stack", vm);

    if (rc == SW_OK) vm->stack[vm->n_stack++] = v;
    return rc;
}

/* Values below the topmost mark belong to somebody else. */
static sw_code pop(sw_pk_value *out, sw_pk_vm *vm)
{
    int64_t lowest = vm->n_marks ? vm->marks[vm->n_marks - 1] : 0;

    if (vm->n_stack <= lowest)
        return SW_FAIL(vm->err, SW_E_FORMAT, "the pickle takes a value that is not there");
    *out = vm->stack[--vm->n_stack];
    return SW_OK;
}

/* What was pushed since the last mark, which goes; the values stay readable until the next push. */
static sw_code pop_marked(const sw_pk_value **out, int64_t *n, sw_pk_vm *vm)
{
    int64_t height;

    if (!vm->n_marks)
        return SW_FAIL(vm->err, SW_E_FORMAT, "the pickle goes back to a mark that it did not set");
    height = vm->marks[--vm->n_marks];
    *n = vm->n_stack - height;
    *out = *n ? vm->stack + height : NULL; /* perhaps there is no stack yet */
    vm->n_stack = height;
    return SW_OK;
}

static sw_pk_value *top_of(sw_pk_vm *vm, sw_pk_kind kind)
{
    int64_t lowest = vm->n_marks ? vm->marks[vm->n_marks - 1] : 0;
    sw_pk_value *top = vm->n_stack > lowest ? &vm->stack[vm->n_stack - 1] : NULL;

    return top && top->kind == kind ? top : NULL;
}

sw_code sw_pk_count(sw_pk_vm *vm, int64_t n)
{
    if (n > SW_PICKLE_ITEMS_MAX - vm->n_items)
        return SW_FAIL(vm->err, SW_E_FORMAT, "the pickle holds more than %lld values",
                       (long long)SW_PICKLE_ITEMS_MAX);
    vm->n_items += n;
    return SW_OK;
}

sw_code sw_pk_items_new(sw_pk_items **out, sw_pk_vm *vm, int64_t n)
{
    sw_pk_items *items = NULL;
    sw_code rc;

    /* an empty one costs too */
    if ((rc = sw_pk_count(vm, 1)) != SW_OK || (rc = SW_ARENA_TAKE(&items, vm->arena, 1, vm->err)))
        return rc;
    items->room = n;
    if (n && (rc = SW_ARENA_TAKE(&items->at, vm->arena, n, vm->err)) != SW_OK) return rc;
    *out = items;
    return SW_OK;
}

static sw_code append(sw_pk_vm *vm, sw_pk_items *items, const sw_pk_value *from, int64_t n)
{
    sw_code rc = sw_pk_count(vm, n);

    if (rc != SW_OK) return rc;
    if (items->n + n > items->room) {
        int64_t room = sw_max_i64(2 * items->room, items->n + n);
        sw_pk_value *grown = NULL;
        if ((rc = SW_ARENA_TAKE(&grown, vm->arena, room, vm->err)) != SW_OK) return rc;
        if (items->n) memcpy(grown, items->at, (size_t)items->n * sizeof *grown);
        items->at = grown;
        items->room = room;
    }
    if (n) memcpy(items->at + items->n, from, (size_t)n * sizeof *from);
    items->n += n;
    return SW_OK;
}

static sw_code push_items(sw_pk_vm *vm, sw_pk_kind kind, const sw_pk_value *from, int64_t n)
{
    sw_pk_value v = {.kind = kind};
    sw_code rc = sw_pk_items_new(&v.is.items, vm, n);

    if (rc == SW_OK) rc = append(vm, v.is.items, from, n);
    return rc == SW_OK ? push(vm, v) : rc;
}

static sw_code push_number(sw_pk_vm *vm, sw_pk_kind kind, int64_t number)
{
    sw_pk_value v = {.kind = kind, .is.number = number};

    return push(vm, v);
}

static sw_code op_none(sw_pk_vm *vm) { return push_number(vm, SW_PK_NONE, 0); }
static sw_code op_true(sw_pk_vm *vm) { return push_number(vm, SW_PK_BOOL, 1); }
static sw_code op_false(sw_pk_vm *vm) { return push_number(vm, SW_PK_BOOL, 0); }
static sw_code op_empty_tuple(sw_pk_vm *vm) { return push_items(vm, SW_PK_TUPLE, NULL, 0); }
static sw_code op_empty_list(sw_pk_vm *vm) { return push_items(vm, SW_PK_LIST, NULL, 0); }
static sw_code op_empty_dict(sw_pk_vm *vm) { return push_items(vm, SW_PK_DICT, NULL, 0); }

static sw_code push_unsigned(sw_pk_vm *vm, int n_bytes)
{
    uint64_t v = 0;
    sw_code rc = take_number(&v, vm, n_bytes);

    return rc == SW_OK ? push_number(vm, SW_PK_INT, (int64_t)v) : rc;
}

static sw_code op_int1(sw_pk_vm *vm) { return push_unsigned(vm, 1); }
static sw_code op_int2(sw_pk_vm *vm) { return push_unsigned(vm, 2); }

static sw_code op_int4(sw_pk_vm *vm)
{
    uint64_t v = 0;
    sw_code rc = take_number(&v, vm, 4);

    return rc == SW_OK ? push_number(vm, SW_PK_INT, (int32_t)(uint32_t)v) : rc;
}

/* Two's complement of any length; nothing here needs more than eight bytes. */
static sw_code op_long1(sw_pk_vm *vm)
{
    unsigned char wide[8];
    const unsigned char *p = NULL;
    uint64_t n = 0;
    sw_code rc;

    if ((rc = take_number(&n, vm, 1)) != SW_OK || (rc = take(&p, vm, n)) != SW_OK) return rc;
    if (n > 8)
        return SW_FAIL(vm->err, SW_E_FORMAT, "an integer of %llu bytes; eight are enough for any "
                       "size", (unsigned long long)n);
    memset(wide, n && p[n - 1] & 0x80 ? 0xff : 0, sizeof wide);
    memcpy(wide, p, n);
    return push_number(vm, SW_PK_INT, (int64_t)sw_load_le64(wide));
}

static sw_code op_real(sw_pk_vm *vm)
{
    const unsigned char *p = NULL;
    sw_code rc = take(&p, vm, 8); /* nothing asks for its value */

    return rc == SW_OK ? push_number(vm, SW_PK_REAL, 0) : rc;
}

static sw_code push_text(sw_pk_vm *vm, int length_bytes)
{
    const unsigned char *p = NULL;
    uint64_t n = 0;
    sw_code rc;

    if ((rc = take_number(&n, vm, length_bytes)) != SW_OK || (rc = take(&p, vm, n)) != SW_OK)
        return rc;
    sw_pk_value v = {.kind = SW_PK_TEXT, .text_bytes = (uint32_t)n, .is.text = (const char *)p};
    return push(vm, v);
}

static sw_code op_text1(sw_pk_vm *vm) { return push_text(vm, 1); }
static sw_code op_text4(sw_pk_vm *vm) { return push_text(vm, 4); }
static sw_code op_text8(sw_pk_vm *vm) { return push_text(vm, 8); }

static sw_code op_mark(sw_pk_vm *vm)
{
    sw_code rc = grow((void **)&vm->marks, &vm->room_marks, vm->n_marks, sizeof *vm->marks,
                      SW_PICKLE_STACK_MAX, "marks", vm);

    if (rc == SW_OK) vm->marks[vm->n_marks++] = vm->n_stack;
    return rc;
}

static sw_code op_pop(sw_pk_vm *vm)
{
    int64_t lowest = vm->n_marks ? vm->marks[vm->n_marks - 1] : 0;
    sw_pk_value v = {.kind = SW_PK_NONE};

    if (vm->n_marks && vm->n_stack == lowest) {
        vm->n_marks--;
        return SW_OK;
    }
    return pop(&v, vm);
}

static sw_code op_pop_mark(sw_pk_vm *vm)
{
    const sw_pk_value *v = NULL;
    int64_t n = 0;

    return pop_marked(&v, &n, vm);
}

static sw_code op_dup(sw_pk_vm *vm)
{
    sw_pk_value v = {.kind = SW_PK_NONE};
    sw_code rc = pop(&v, vm);

    if (rc == SW_OK) rc = push(vm, v);
    return rc == SW_OK ? push(vm, v) : rc;
}

/* The n values on top as a tuple. */
static sw_code push_tuple(sw_pk_vm *vm, int n)
{
    sw_pk_value values[3] = {{.kind = SW_PK_NONE}};
    sw_code rc = SW_OK;

    for (int i = n - 1; i >= 0 && rc == SW_OK; i--) rc = pop(&values[i], vm);
    return rc == SW_OK ? push_items(vm, SW_PK_TUPLE, values, n) : rc;
}

static sw_code op_tuple1(sw_pk_vm *vm) { return push_tuple(vm, 1); }
static sw_code op_tuple2(sw_pk_vm *vm) { return push_tuple(vm, 2); }
static sw_code op_tuple3(sw_pk_vm *vm) { return push_tuple(vm, 3); }

static sw_code push_marked(sw_pk_vm *vm, sw_pk_kind kind)
{
    const sw_pk_value *values = NULL;
    int64_t n = 0;
    sw_code rc = pop_marked(&values, &n, vm);

    if (rc == SW_OK && kind == SW_PK_DICT && n % 2)
        rc = SW_FAIL(vm->err, SW_E_FORMAT, "a dictionary with a key and no value");
    return rc == SW_OK ? push_items(vm, kind, values, n) : rc;
}

static sw_code op_tuple(sw_pk_vm *vm) { return push_marked(vm, SW_PK_TUPLE); }
static sw_code op_list(sw_pk_vm *vm) { return push_marked(vm, SW_PK_LIST); }
static sw_code op_dict(sw_pk_vm *vm) { return push_marked(vm, SW_PK_DICT); }

static sw_code add_to(sw_pk_vm *vm, sw_pk_kind kind, const sw_pk_value *values, int64_t n)
{
    sw_pk_value *target = top_of(vm, kind);

    if (!target || (kind == SW_PK_DICT && n % 2))
        return SW_FAIL(vm->err, SW_E_FORMAT, "the pickle adds to what is no %s",
                       kind == SW_PK_DICT ? "dictionary" : "list");
    return append(vm, target->is.items, values, n);
}

static sw_code op_append(sw_pk_vm *vm)
{
    sw_pk_value v = {.kind = SW_PK_NONE};
    sw_code rc = pop(&v, vm);

    return rc == SW_OK ? add_to(vm, SW_PK_LIST, &v, 1) : rc;
}

static sw_code op_set_item(sw_pk_vm *vm)
{
    sw_pk_value pair[2] = {{.kind = SW_PK_NONE}};
    sw_code rc;

    if ((rc = pop(&pair[1], vm)) != SW_OK || (rc = pop(&pair[0], vm)) != SW_OK) return rc;
    return add_to(vm, SW_PK_DICT, pair, 2);
}

static sw_code add_marked(sw_pk_vm *vm, sw_pk_kind kind)
{
    const sw_pk_value *values = NULL;
    int64_t n = 0;
    sw_code rc = pop_marked(&values, &n, vm);

    return rc == SW_OK ? add_to(vm, kind, values, n) : rc;
}

static sw_code op_appends(sw_pk_vm *vm) { return add_marked(vm, SW_PK_LIST); }
static sw_code op_set_items(sw_pk_vm *vm) { return add_marked(vm, SW_PK_DICT); }

static sw_code memo_put(sw_pk_vm *vm, uint64_t slot)
{
    int64_t room = vm->n_memo, room_kept = vm->n_memo;
    sw_pk_value v = {.kind = SW_PK_NONE};
    sw_code rc;

    if (slot >= (uint64_t)SW_PICKLE_MEMO_MAX)
        return SW_FAIL(vm->err, SW_E_FORMAT, "the pickle remembers under number %llu; %lld are "
                       "allowed", (unsigned long long)slot, (long long)SW_PICKLE_MEMO_MAX);
    if ((rc = pop(&v, vm)) != SW_OK || (rc = push(vm, v)) != SW_OK) return rc;
    rc = grow((void **)&vm->memo, &room, (int64_t)slot, sizeof *vm->memo, SW_PICKLE_MEMO_MAX,
              "remembered values", vm);
    if (rc == SW_OK)
        rc = grow((void **)&vm->is_kept, &room_kept, (int64_t)slot, sizeof *vm->is_kept,
                  SW_PICKLE_MEMO_MAX, "remembered values", vm);
    if (rc != SW_OK) return rc;
    vm->n_memo = room;
    vm->memo[slot] = v;
    vm->is_kept[slot] = true;
    vm->n_puts++;
    return SW_OK;
}

static sw_code memo_get(sw_pk_vm *vm, uint64_t slot)
{
    if (slot >= (uint64_t)vm->n_memo || !vm->is_kept[slot])
        return SW_FAIL(vm->err, SW_E_FORMAT, "the pickle recalls number %llu, which it never kept",
                       (unsigned long long)slot);
    return push(vm, vm->memo[slot]);
}

static sw_code with_slot(sw_pk_vm *vm, int n_bytes, sw_code (*use)(sw_pk_vm *, uint64_t))
{
    uint64_t slot = 0;
    sw_code rc = take_number(&slot, vm, n_bytes);

    return rc == SW_OK ? use(vm, slot) : rc;
}

static sw_code op_put1(sw_pk_vm *vm) { return with_slot(vm, 1, memo_put); }
static sw_code op_put4(sw_pk_vm *vm) { return with_slot(vm, 4, memo_put); }
static sw_code op_get1(sw_pk_vm *vm) { return with_slot(vm, 1, memo_get); }
static sw_code op_get4(sw_pk_vm *vm) { return with_slot(vm, 4, memo_get); }
static sw_code op_memoize(sw_pk_vm *vm) { return memo_put(vm, (uint64_t)vm->n_puts); }

static sw_code push_name(sw_pk_vm *vm, const char *module, size_t module_bytes, const char *name,
                         size_t name_bytes)
{
    sw_pk_value v = {.kind = SW_PK_NAME};
    sw_code rc = sw_pk_name_find(&v.is.name, vm, module, module_bytes, name, name_bytes);

    return rc == SW_OK ? push(vm, v) : rc;
}

static sw_code take_line(const char **out, size_t *n, sw_pk_vm *vm)
{
    const unsigned char *end = memchr(vm->at, '\n', (size_t)(vm->end - vm->at));

    if (!end) return SW_FAIL(vm->err, SW_E_FORMAT, "the pickle ends inside a name");
    *out = (const char *)vm->at;
    *n = (size_t)(end - vm->at);
    vm->at = end + 1;
    return SW_OK;
}

/* Also of the operations that would make an object at once: they are refused all the same. */
static sw_code op_global(sw_pk_vm *vm)
{
    const char *module = NULL, *name = NULL;
    size_t module_bytes = 0, name_bytes = 0;
    sw_code rc;

    if ((rc = take_line(&module, &module_bytes, vm)) != SW_OK ||
        (rc = take_line(&name, &name_bytes, vm)) != SW_OK)
        return rc;
    return push_name(vm, module, module_bytes, name, name_bytes);
}

static sw_code op_stack_global(sw_pk_vm *vm)
{
    sw_pk_value name = {.kind = SW_PK_NONE}, module = name;
    sw_code rc;

    if ((rc = pop(&name, vm)) != SW_OK || (rc = pop(&module, vm)) != SW_OK) return rc;
    if (name.kind != SW_PK_TEXT || module.kind != SW_PK_TEXT)
        return SW_FAIL(vm->err, SW_E_FORMAT, "the pickle names something by what is no text");
    return push_name(vm, module.is.text, module.text_bytes, name.is.text, name.text_bytes);
}

static sw_code op_reduce(sw_pk_vm *vm)
{
    sw_pk_value args = {.kind = SW_PK_NONE}, callee = args, made = args;
    sw_code rc;

    if ((rc = pop(&args, vm)) != SW_OK || (rc = pop(&callee, vm)) != SW_OK) return rc;
    if (callee.kind != SW_PK_NAME || args.kind != SW_PK_TUPLE)
        return SW_FAIL(vm->err, SW_E_FORMAT, "the pickle calls what is no function");
    rc = sw_pk_call(&made, vm, callee.is.name, args.is.items);
    return rc == SW_OK ? push(vm, made) : rc;
}

/* Attributes beside the items of a dictionary, such as versions of modules: nothing needs them. */
static sw_code op_build(sw_pk_vm *vm)
{
    sw_pk_value attributes = {.kind = SW_PK_NONE};
    sw_code rc = pop(&attributes, vm);

    if (rc != SW_OK) return rc;
    if (top_of(vm, SW_PK_DICT) && attributes.kind == SW_PK_DICT) return SW_OK;
    return SW_FAIL(vm->err, SW_E_UNSUPPORTED, "the pickle sets attributes of what is no "
                   "dictionary");
}

static sw_code op_persistent(sw_pk_vm *vm)
{
    sw_pk_value id = {.kind = SW_PK_NONE}, storage = id;
    sw_code rc = pop(&id, vm);

    if (rc == SW_OK) rc = sw_pk_storage_make(&storage, vm, &id);
    return rc == SW_OK ? push(vm, storage) : rc;
}

static sw_code op_protocol(sw_pk_vm *vm)
{
    uint64_t version = 0;
    sw_code rc = take_number(&version, vm, 1);

    if (rc == SW_OK && (version < 2 || version > 5))
        rc = SW_FAIL(vm->err, SW_E_UNSUPPORTED, "a pickle of protocol %llu; 2 to 5 can be read",
                     (unsigned long long)version);
    return rc;
}

static sw_code op_frame(sw_pk_vm *vm)
{
    const unsigned char *p = NULL;

    return take(&p, vm, 8);
}

static sw_code op_stop(sw_pk_vm *vm)
{
    vm->is_done = true;
    return SW_OK;
}

static const op_fn ops[256] = {
    [0x80] = op_protocol, [0x95] = op_frame, ['.'] = op_stop,
    ['N'] = op_none, [0x88] = op_true, [0x89] = op_false,
    ['K'] = op_int1, ['M'] = op_int2, ['J'] = op_int4, [0x8a] = op_long1, ['G'] = op_real,
    ['X'] = op_text4, [0x8c] = op_text1, [0x8d] = op_text8,
    ['T'] = op_text4, ['U'] = op_text1, ['B'] = op_text4, ['C'] = op_text1, [0x8e] = op_text8,
    [')'] = op_empty_tuple, [']'] = op_empty_list, ['}'] = op_empty_dict,
    ['('] = op_mark, ['0'] = op_pop, ['1'] = op_pop_mark, ['2'] = op_dup,
    ['t'] = op_tuple, ['l'] = op_list, ['d'] = op_dict,
    [0x85] = op_tuple1, [0x86] = op_tuple2, [0x87] = op_tuple3,
    ['a'] = op_append, ['e'] = op_appends, ['s'] = op_set_item, ['u'] = op_set_items,
    ['q'] = op_put1, ['r'] = op_put4, [0x94] = op_memoize, ['h'] = op_get1, ['j'] = op_get4,
    ['c'] = op_global, ['i'] = op_global, [0x93] = op_stack_global,
    ['R'] = op_reduce, ['b'] = op_build, ['Q'] = op_persistent,
};

static sw_code run(sw_pk_vm *vm)
{
    sw_code rc = SW_OK;

    while (!vm->is_done && rc == SW_OK) {
        const unsigned char *op = NULL;
        if ((rc = take(&op, vm, 1)) != SW_OK) return rc;
        if (!ops[*op])
            return SW_FAIL(vm->err, SW_E_UNSUPPORTED, "the pickle has operation 0x%02x, which "
                           "tensors do not need", *op);
        rc = ops[*op](vm);
    }
    if (rc == SW_OK && (vm->n_stack != 1 || vm->n_marks || vm->at != vm->end))
        rc = SW_FAIL(vm->err, SW_E_FORMAT, "the pickle leaves values, or bytes, behind");
    return rc;
}

sw_code sw_pickle_read(sw_pickle_tensor **out, int64_t *n_out, sw_arena *arena, const void *bytes,
                       size_t n_bytes, const char *what, sw_err *err)
{
    sw_pk_vm vm = {.at = bytes, .end = (const unsigned char *)bytes + n_bytes, .err = err};
    sw_arena scratch = {0};
    sw_code rc;

    if (n_bytes > SW_PICKLE_MAX_BYTES)
        return SW_FAIL(err, SW_E_FORMAT, "%s: a pickle of %zu bytes; %zu are allowed", what,
                       n_bytes, (size_t)SW_PICKLE_MAX_BYTES);
    vm.arena = &scratch;
    rc = run(&vm);
    vm.arena = arena;
    if (rc == SW_OK) rc = sw_pk_list(out, n_out, &vm, &vm.stack[0]);
    sw_err_prefix(err, "%s", what);
    sw_mem_put(vm.stack);
    sw_mem_put(vm.marks);
    sw_mem_put(vm.memo);
    sw_mem_put(vm.is_kept);
    sw_arena_free(&scratch);
    return rc;
}
