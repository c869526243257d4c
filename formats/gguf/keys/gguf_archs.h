/* gguf_archs.h - the architectures of GGUF files that are known here, as data.
 *
 * A row says what loaders call a family, how its tensors are named where that differs from most,
 * which keys of the metadata stand for which of config.json (gguf_keys.h), and how its rows are
 * ordered. Rows of one name in the file are told apart by what the file has.
 */
#ifndef SW_FORMATS_GGUF_KEYS_GGUF_ARCHS_H
#define SW_FORMATS_GGUF_KEYS_GGUF_ARCHS_H

#include "formats/model/model.h"

typedef struct sw_gguf_key_row sw_gguf_key_row; /* gguf_keys.h */
typedef struct sw_gguf_hooks sw_gguf_hooks;     /* the same */

typedef enum sw_gguf_experts { SW_GGUF_DENSE, SW_GGUF_SPARSE, SW_GGUF_EITHER } sw_gguf_experts;

/* Do layers choose the keys that they see, and what does turn in what they choose by? */
typedef enum sw_gguf_choice {
    SW_GGUF_SEES_ALL, SW_GGUF_CHOOSES_HALVES, SW_GGUF_CHOOSES_PAIRS
} sw_gguf_choice;

typedef enum sw_gguf_order {
    SW_GGUF_PLAIN,     /* rows as they are */
    SW_GGUF_V_HEADS,   /* heads of values of delta nets: all first ones of the heads of keys, ... */
    SW_GGUF_UNGROUPED  /* the inputs of delta nets apart that the model has by head of keys */
} sw_gguf_order;

/* What comes between "blk.N." and ".weight". */
typedef struct sw_gguf_stem {
    sw_slot slot;
    const char *stem;
} sw_gguf_stem;

typedef struct sw_gguf_arch {
    const char *gguf;        /* general.architecture */
    const char *model_type;  /* of the row of families/archs.def */
    sw_gguf_experts experts;
    const char *as_type, *as_class; /* of config.json; NULL: those of that row */
    const char *if_key;      /* a file with this key is of this row; NULL: any */
    bool turns_pairs;        /* loaders turn neighbours, whatever the model does */
    bool is_read_only;       /* another row is how such models are written */
    sw_gguf_order order;
    sw_gguf_choice choice;
    const char *eps_key, *eps_json; /* NULL: layer_norm_rms_epsilon, rms_norm_eps */
    const char *act_json, *act;     /* NULL: hidden_act, silu */
    const sw_gguf_stem *stems;      /* up to a NULL stem; or NULL */
    const sw_gguf_key_row *keys;        /* beside the common ones, up to a NULL kind; or NULL */
    const sw_gguf_hooks *hooks;     /* what is no single key; or NULL */
} sw_gguf_arch;

/* SW_E_UNSUPPORTED lists what there is. */
sw_code sw_gguf_arch_of_model(const sw_gguf_arch **out, const sw_model *m,
                              sw_err *err) SW_MUST_USE;
/* Does the file have a key, without the architecture's name before it? */
typedef bool (*sw_gguf_has_key)(const void *file, const char *leaf);
sw_code sw_gguf_arch_of_file(const sw_gguf_arch **out, const char *gguf, bool has_experts,
                             sw_gguf_has_key has_key, const void *file, sw_err *err) SW_MUST_USE;
const char *sw_gguf_stem_of(const sw_gguf_arch *arch, sw_slot slot); /* NULL: no name */

#endif
