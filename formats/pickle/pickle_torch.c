/* pickle_torch.c - see pickle.h: the names that a pickle may use, and what comes of them. */
#include <string.h>

#include "formats/base/json.h"
#include "formats/base/size.h"
#include "formats/pickle/pickle_internal.h"

typedef enum role {
    MAKES_DICT,      /* an OrderedDict */
    MAKES_TUPLE,     /* a torch.Size */
    MAKES_TENSOR,    /* storage, first, shape, strides, ... */
    MAKES_TENSOR_AS, /* the same, with the dtype as the seventh */
    MAKES_PARAMETER, /* the tensor that is its first argument */
    IS_STORAGE,      /* of elements of this dtype */
    IS_DTYPE
} role;

struct sw_pk_name {
    const char *module, *name;
    role role;
    sw_dtype dtype;
};

static const sw_pk_name names[] = {
    {"collections", "OrderedDict", MAKES_DICT, 0},
    {"torch", "Size", MAKES_TUPLE, 0},
    {"torch._utils", "_rebuild_tensor_v2", MAKES_TENSOR, 0},
    {"torch._utils", "_rebuild_tensor_v3", MAKES_TENSOR_AS, 0},
    {"torch._utils", "_rebuild_parameter", MAKES_PARAMETER, 0},
    {"torch._utils", "_rebuild_parameter_with_state", MAKES_PARAMETER, 0},
    {"torch", "DoubleStorage", IS_STORAGE, SW_DTYPE_F64},
    {"torch", "FloatStorage", IS_STORAGE, SW_DTYPE_F32},
    {"torch", "HalfStorage", IS_STORAGE, SW_DTYPE_F16},
    {"torch", "BFloat16Storage", IS_STORAGE, SW_DTYPE_BF16},
    {"torch", "LongStorage", IS_STORAGE, SW_DTYPE_I64},
    {"torch", "IntStorage", IS_STORAGE, SW_DTYPE_I32},
    {"torch", "ShortStorage", IS_STORAGE, SW_DTYPE_I16},
    {"torch", "CharStorage", IS_STORAGE, SW_DTYPE_I8},
    {"torch", "ByteStorage", IS_STORAGE, SW_DTYPE_U8},
    {"torch", "BoolStorage", IS_STORAGE, SW_DTYPE_BOOL},
    {"torch", "ComplexFloatStorage", IS_STORAGE, SW_DTYPE_C64},
    {"torch.storage", "UntypedStorage", IS_STORAGE, SW_DTYPE_U8},
    {"torch", "UntypedStorage", IS_STORAGE, SW_DTYPE_U8},
    {"torch", "float64", IS_DTYPE, SW_DTYPE_F64},
    {"torch", "float32", IS_DTYPE, SW_DTYPE_F32},
    {"torch", "float16", IS_DTYPE, SW_DTYPE_F16},
    {"torch", "bfloat16", IS_DTYPE, SW_DTYPE_BF16},
    {"torch", "float8_e4m3fn", IS_DTYPE, SW_DTYPE_F8_E4M3},
    {"torch", "float8_e5m2", IS_DTYPE, SW_DTYPE_F8_E5M2},
    {"torch", "float8_e4m3fnuz", IS_DTYPE, SW_DTYPE_F8_E4M3FNUZ},
    {"torch", "float8_e5m2fnuz", IS_DTYPE, SW_DTYPE_F8_E5M2FNUZ},
    {"torch", "float8_e8m0fnu", IS_DTYPE, SW_DTYPE_F8_E8M0},
    {"torch", "int64", IS_DTYPE, SW_DTYPE_I64},
    {"torch", "int32", IS_DTYPE, SW_DTYPE_I32},
    {"torch", "int16", IS_DTYPE, SW_DTYPE_I16},
    {"torch", "int8", IS_DTYPE, SW_DTYPE_I8},
    {"torch", "uint8", IS_DTYPE, SW_DTYPE_U8},
    {"torch", "uint16", IS_DTYPE, SW_DTYPE_U16},
    {"torch", "uint32", IS_DTYPE, SW_DTYPE_U32},
    {"torch", "uint64", IS_DTYPE, SW_DTYPE_U64},
    {"torch", "bool", IS_DTYPE, SW_DTYPE_BOOL},
};

static bool is_text(const char *text, const char *have, size_t n)
{
    return strlen(text) == n && !memcmp(text, have, n);
}

static int shown(size_t n) { return (int)(n > 100 ? 100 : n); }

sw_code sw_pk_name_find(const sw_pk_name **out, sw_pk_vm *vm, const char *module,
                        size_t module_bytes, const char *name, size_t name_bytes)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_text(names[i].module, module, module_bytes) &&
            is_text(names[i].name, name, name_bytes)) {
            *out = &names[i];
            return SW_OK;
        }
    return SW_FAIL(vm->err, SW_E_UNSUPPORTED, "the pickle names %.*s.%.*s, which could be any code "
                   "and is not run; only tensors are read. If you trust the file, load it where it "
                   "was made and save its tensors as safetensors", shown(module_bytes), module,
                   shown(name_bytes), name);
}

static sw_code refuse_args(sw_pk_vm *vm, const sw_pk_name *name)
{
    return SW_FAIL(vm->err, SW_E_FORMAT, "%s.%s with arguments of other kinds than it has",
                   name->module, name->name);
}

static sw_code make_dict(sw_pk_value *out, sw_pk_vm *vm, const sw_pk_name *name,
                         const sw_pk_items *args)
{
    sw_pk_value v = {.kind = SW_PK_DICT};
    sw_code rc;

    if (args->n) return refuse_args(vm, name); /* items are set one by one */
    if ((rc = sw_pk_items_new(&v.is.items, vm, 0)) == SW_OK) *out = v;
    return rc;
}

static bool read_numbers(int64_t *out, int32_t *n, const sw_pk_value *v)
{
    if ((v->kind != SW_PK_TUPLE && v->kind != SW_PK_LIST) || v->is.items->n > SW_DIMS_MAX)
        return false;
    for (int64_t i = 0; i < v->is.items->n; i++) {
        if (v->is.items->at[i].kind != SW_PK_INT || v->is.items->at[i].is.number < 0) return false;
        out[i] = v->is.items->at[i].is.number;
    }
    *n = (int32_t)v->is.items->n;
    return true;
}

/* true when every element lies within n_elems of the storage, and none of them is there for more
 * than its share: a tensor larger than its storage would grow without bound when written. */
static bool is_within(const sw_pickle_tensor *t)
{
    uint64_t last = (uint64_t)t->first, n = 1, step;

    for (int32_t i = 0; i < t->n_dims; i++)
        if (!t->shape[i]) return t->first <= t->storage_elems;
    for (int32_t i = 0; i < t->n_dims; i++)
        if (!sw_mul_u64(&n, n, (uint64_t)t->shape[i]) ||
            !sw_mul_u64(&step, (uint64_t)t->shape[i] - 1, (uint64_t)t->strides[i]) ||
            !sw_add_u64(&last, last, step))
            return false;
    return last < (uint64_t)t->storage_elems && n <= (uint64_t)t->storage_elems;
}

static sw_code make_tensor(sw_pk_value *out, sw_pk_vm *vm, const sw_pk_name *name,
                           const sw_pk_items *args)
{
    const bool is_as = name->role == MAKES_TENSOR_AS;
    const sw_pk_value *a = args->at;
    sw_pk_value v = {.kind = SW_PK_TENSOR};
    const sw_pk_storage *storage;
    sw_pickle_tensor t = {0};
    int32_t n_strides = 0;
    int64_t elem_bytes, type_bytes;
    sw_code rc;

    if (args->n < (is_as ? 7 : 6) || a[0].kind != SW_PK_STORAGE || a[1].kind != SW_PK_INT ||
        a[1].is.number < 0 || !read_numbers(t.shape, &t.n_dims, &a[2]) ||
        !read_numbers(t.strides, &n_strides, &a[3]) || n_strides != t.n_dims ||
        (is_as && (a[6].kind != SW_PK_NAME || a[6].is.name->role != IS_DTYPE)))
        return refuse_args(vm, name);
    storage = a[0].is.storage;
    t.dtype = is_as ? a[6].is.name->dtype : storage->type->dtype;
    type_bytes = sw_dtype_bits(storage->type->dtype) / 8;
    elem_bytes = sw_dtype_bits(t.dtype) / 8;
    t.storage_elems = storage->n_elems / (type_bytes > elem_bytes ? 1 : elem_bytes / type_bytes);
    t.first = a[1].is.number;
    if (type_bytes > elem_bytes) return refuse_args(vm, name);
    if (!is_within(&t))
        return SW_FAIL(vm->err, SW_E_FORMAT, "a tensor that reaches beyond its storage of %lld "
                       "elements, or repeats them", (long long)t.storage_elems);
    if ((rc = sw_pk_count(vm, 8)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&v.is.tensor, vm->arena, 1, vm->err)) != SW_OK)
        return rc;
    t.storage_key = storage->key.is.text; /* not terminated; a copy is made when it is listed */
    v.text_bytes = storage->key.text_bytes;
    v.is.tensor->view = t;
    vm->n_tensors++;
    *out = v;
    return SW_OK;
}

sw_code sw_pk_call(sw_pk_value *out, sw_pk_vm *vm, const sw_pk_name *name, const sw_pk_items *args)
{
    const sw_pk_value *first = args->n ? &args->at[0] : NULL;

    if (name->role == MAKES_DICT) return make_dict(out, vm, name, args);
    if (name->role == MAKES_TENSOR || name->role == MAKES_TENSOR_AS)
        return make_tensor(out, vm, name, args);
    if (!first || (name->role == MAKES_PARAMETER && first->kind != SW_PK_TENSOR) ||
        (name->role == MAKES_TUPLE && first->kind != SW_PK_TUPLE) || name->role >= IS_STORAGE)
        return refuse_args(vm, name);
    *out = *first;
    return SW_OK;
}

sw_code sw_pk_storage_make(sw_pk_value *out, sw_pk_vm *vm, const sw_pk_value *id)
{
    const sw_pk_items *args = id->kind == SW_PK_TUPLE ? id->is.items : NULL;
    sw_pk_value v = {.kind = SW_PK_STORAGE};
    sw_pk_storage *storage = NULL;
    sw_code rc;

    if (!args || args->n != 5 || args->at[0].kind != SW_PK_TEXT ||
        !is_text("storage", args->at[0].is.text, args->at[0].text_bytes) ||
        args->at[1].kind != SW_PK_NAME || args->at[1].is.name->role != IS_STORAGE ||
        args->at[2].kind != SW_PK_TEXT || args->at[4].kind != SW_PK_INT ||
        args->at[4].is.number < 0)
        return SW_FAIL(vm->err, SW_E_FORMAT, "the pickle refers to something outside of it that is "
                       "no storage of a tensor");
    if ((rc = sw_pk_count(vm, 2)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&storage, vm->arena, 1, vm->err)) != SW_OK)
        return rc;
    storage->key = args->at[2];
    storage->type = args->at[1].is.name;
    storage->n_elems = args->at[4].is.number;
    v.is.storage = storage;
    *out = v;
    return SW_OK;
}

static int64_t count_tensors(const sw_pk_items *dict)
{
    int64_t n = 0;

    for (int64_t i = 1; i < dict->n; i += 2) n += dict->at[i].kind == SW_PK_TENSOR;
    return n;
}

/* The dictionary of tensors: the root, or what a training program keeps it under. */
static const sw_pk_items *find_dict(const sw_pk_value *root)
{
    static const char *const keys[] = {"state_dict", "model", "module"};
    const sw_pk_items *dict = root->kind == SW_PK_DICT ? root->is.items : NULL;

    if (!dict || count_tensors(dict)) return dict;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (int64_t i = 0; i + 1 < dict->n; i += 2)
            if (dict->at[i].kind == SW_PK_TEXT && dict->at[i + 1].kind == SW_PK_DICT &&
                is_text(keys[k], dict->at[i].is.text, dict->at[i].text_bytes))
                return dict->at[i + 1].is.items;
    return dict;
}

static sw_code keep_text(const char **out, sw_pk_vm *vm, const char *text, size_t n)
{
    size_t bad_at;
    char *kept;
    sw_code rc;

    if (!n || memchr(text, '\0', n) || !sw_utf8_is_valid(text, n, &bad_at))
        return SW_FAIL(vm->err, SW_E_FORMAT, "a tensor's name, or its storage's, is no text");
    if ((rc = sw_arena_text(&kept, vm->arena, text, n, vm->err)) == SW_OK) *out = kept;
    return rc;
}

static sw_code list_one(sw_pickle_tensor *out, sw_pk_vm *vm, const sw_pk_value *key,
                        const sw_pk_value *value)
{
    sw_code rc;

    if (key->kind != SW_PK_TEXT)
        return SW_FAIL(vm->err, SW_E_FORMAT, "a tensor's name is no text");
    *out = value->is.tensor->view;
    if ((rc = keep_text(&out->name, vm, key->is.text, key->text_bytes)) != SW_OK) return rc;
    rc = keep_text(&out->storage_key, vm, out->storage_key, value->text_bytes);
    if (rc == SW_OK && !value->is.tensor->is_listed) {
        value->is.tensor->is_listed = true;
        vm->n_tensors--;
    }
    return rc;
}

sw_code sw_pk_list(sw_pickle_tensor **out, int64_t *n_out, sw_pk_vm *vm, const sw_pk_value *root)
{
    const sw_pk_items *dict = find_dict(root);
    sw_pickle_tensor *tensors = NULL;
    int64_t n = 0, room = dict ? count_tensors(dict) : 0;
    sw_code rc;

    if (!dict)
        return SW_FAIL(vm->err, SW_E_FORMAT, "the pickle is no dictionary of tensors");
    if ((rc = SW_ARENA_TAKE(&tensors, vm->arena, room, vm->err)) != SW_OK) return rc;
    for (int64_t i = 0; i + 1 < dict->n && rc == SW_OK; i += 2)
        if (dict->at[i + 1].kind == SW_PK_TENSOR)
            rc = list_one(&tensors[n++], vm, &dict->at[i], &dict->at[i + 1]);
    if (rc != SW_OK) return rc;
    if (vm->n_tensors)
        return SW_FAIL(vm->err, SW_E_UNSUPPORTED, "the pickle keeps %lld tensors in other places "
                       "than its dictionary of tensors; save that alone", (long long)vm->n_tensors);
    *out = tensors;
    *n_out = n;
    return SW_OK;
}
