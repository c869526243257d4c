/* gguf_keys.h - keys of the metadata and of config.json that say the same of a model.
 *
 * Most are one number under two names, and a row of a table serves reading and writing: written
 * from the model's description, read into config.json. What loaders take for granted is a row too:
 * config.json says it, and a model that is otherwise is refused. What is more than one number is a
 * family's hook.
 */
#ifndef SW_FORMATS_GGUF_KEYS_GGUF_KEYS_H
#define SW_FORMATS_GGUF_KEYS_GGUF_KEYS_H

#include "formats/base/json.h"
#include "formats/file/gguf.h"
#include "formats/gguf/keys/gguf_archs.h"

typedef enum sw_gguf_key_kind {
    SW_GGUF_KEY_INT = 1,  /* a size; not written when 0 and not required */
    SW_GGUF_KEY_REAL,
    SW_GGUF_KEY_INVERSE,  /* the model keeps 1 / it */
    SW_GGUF_KEY_BOOL,
    SW_GGUF_KEY_SHARE,    /* how many experts wide: the model keeps it times moe_intermediate */
    SW_GGUF_FIXED_INT,    /* only config.json says it: value, ... */
    SW_GGUF_FIXED_REAL,
    SW_GGUF_FIXED_BOOL,
    SW_GGUF_FIXED_TEXT,   /* text */
    SW_GGUF_FILE_INT      /* only the file says it: value */
} sw_gguf_key_kind;

struct sw_gguf_key_row {
    sw_gguf_key_kind kind;
    const char *leaf;    /* behind "<architecture>." */
    const char *json;    /* of config.json; NULL: another row says it there */
    size_t field; /* of sw_model; of a fixed one SW_GGUF_NO_FIELD or what has to be `value` */
    double value;        /* when the file is silent; SW_GGUF_REQUIRED, SW_GGUF_UNSAID */
    const char *text;    /* of a text; else why a model with another value is refused */
};
#define SW_GGUF_NO_FIELD ((size_t)-1)
#define SW_GGUF_REQUIRED (-1e300)
#define SW_GGUF_UNSAID (-2e300) /* then config.json does not say it either */

typedef struct sw_gguf_config_reader {
    const sw_gguf *g;
    const char *name; /* general.architecture */
    const sw_gguf_arch *arch;
    cJSON *config;
    sw_arena arena;
    sw_err *err;
    int64_t n_layers;
} sw_gguf_config_reader;

typedef struct sw_gguf_config_writer {
    sw_gguf_writer *w;
    const sw_model *m;
    const sw_gguf_arch *arch;
    sw_err *err;
} sw_gguf_config_writer;

#define SW_GGUF_KEY_BYTES 128
#define SW_GGUF_EPS "attention.layer_norm_rms_epsilon"

/* What no single key says, of one family or several. */
struct sw_gguf_hooks {
    bool has_own_rope;   /* says all of rope itself */
    bool has_own_heads;  /* says head_count_kv, key_length, value_length itself */
    bool has_own_widths; /* says feed_forward_length itself */
    bool has_no_heads;   /* no layer has attention */
    bool knows_windows;  /* loaders do as well; else a context ends with its window or is refused */
    bool may_cut_rope;   /* yarn of the published models rounds no limits; that of loaders does */
    double yarn_part;    /* the part of mscale_all_dim that the file has; 0: none */
    sw_code (*write)(const sw_gguf_config_writer *c) SW_MUST_USE;
    sw_code (*read)(sw_gguf_config_reader *r) SW_MUST_USE; /* after all other keys */
};
extern const sw_gguf_hooks sw_gguf_hooks_gemma2, sw_gguf_hooks_gemma3, sw_gguf_hooks_gemma3n,
    sw_gguf_hooks_gemma4, sw_gguf_hooks_windows, sw_gguf_hooks_olmo3, sw_gguf_hooks_exaone4,
    sw_gguf_hooks_smollm3, sw_gguf_hooks_llama4, sw_gguf_hooks_mistral3, sw_gguf_hooks_gpt_oss;
extern const sw_gguf_hooks sw_gguf_hooks_sparse, sw_gguf_hooks_olmoe, sw_gguf_hooks_glm4_moe,
    sw_gguf_hooks_latent, sw_gguf_hooks_indexed, sw_gguf_hooks_ernie_moe, sw_gguf_hooks_hunyuan_moe;
extern const sw_gguf_hooks sw_gguf_hooks_biased, sw_gguf_hooks_stablelm, sw_gguf_hooks_gpt_neox,
    sw_gguf_hooks_falcon;
extern const sw_gguf_hooks sw_gguf_hooks_qwen_delta, sw_gguf_hooks_lfm2, sw_gguf_hooks_mamba2,
    sw_gguf_hooks_granite_hybrid, sw_gguf_hooks_bamba, sw_gguf_hooks_nemotron, sw_gguf_hooks_kimi;

/* --- writing ------------------------------------------------------------------------------ */

sw_code sw_gguf_write_int(const sw_gguf_config_writer *c, const char *leaf, int64_t v) SW_MUST_USE;
sw_code sw_gguf_write_real(const sw_gguf_config_writer *c, const char *leaf, double v) SW_MUST_USE;
sw_code sw_gguf_write_bool(const sw_gguf_config_writer *c, const char *leaf, bool v) SW_MUST_USE;
sw_code sw_gguf_write_text(const sw_gguf_config_writer *c, const char *leaf,
                           const char *text) SW_MUST_USE;
/* A number for every layer: of_layer(m, l). */
typedef int64_t (*sw_gguf_of_layer)(const sw_model *m, int64_t layer);
sw_code sw_gguf_write_layers(const sw_gguf_config_writer *c, const char *leaf, sw_gguf_kind kind,
                             sw_gguf_of_layer of_layer) SW_MUST_USE;
/* SW_E_UNSUPPORTED: "NAME: loaders of GGUF architecture X <what>" */
sw_code sw_gguf_refuse(const sw_gguf_config_writer *c, const char *what) SW_MUST_USE;
/* All rows of a table. */
sw_code sw_gguf_write_keys(const sw_gguf_config_writer *c, const sw_gguf_key_row *keys) SW_MUST_USE;

/* --- reading ------------------------------------------------------------------------------ */

sw_code sw_gguf_read_keys(sw_gguf_config_reader *r, const sw_gguf_key_row *keys) SW_MUST_USE;
const char *sw_gguf_key_of(char out[SW_GGUF_KEY_BYTES], const sw_gguf_config_reader *r,
                           const char *leaf);
/* A count; SW_GGUF_REQUIRED as when_absent: SW_E_FORMAT names the key. A list is refused. */
sw_code sw_gguf_read_count(int64_t *out, const sw_gguf_config_reader *r, const char *leaf,
                           double when_absent) SW_MUST_USE;
sw_code sw_gguf_read_real(double *out, const sw_gguf_config_reader *r,
                          const char *leaf) SW_MUST_USE;
/* A number for every layer, out of a list or of one for all; *is_list. false in *is_there: the key
 * is absent. out[SW_LAYERS_MAX]. */
sw_code sw_gguf_read_layers(int64_t *out, bool *is_there, const sw_gguf_config_reader *r,
                            const char *leaf) SW_MUST_USE;
sw_code sw_gguf_add_int(const sw_gguf_config_reader *r, const char *key, int64_t v) SW_MUST_USE;
sw_code sw_gguf_add_real(const sw_gguf_config_reader *r, cJSON *to, const char *key,
                         double v) SW_MUST_USE;
sw_code sw_gguf_add_bool(const sw_gguf_config_reader *r, const char *key, bool v) SW_MUST_USE;
sw_code sw_gguf_add_text(const sw_gguf_config_reader *r, cJSON *to, const char *key,
                         const char *text) SW_MUST_USE;
/* A list of words, one for each layer: words[index[l]]. */
sw_code sw_gguf_add_words(const sw_gguf_config_reader *r, const char *key, const int64_t *index,
                          const char *const *words) SW_MUST_USE;
/* SW_OK if `item` is one, else SW_E_NOMEM. */
sw_code sw_gguf_added(const sw_gguf_config_reader *r, const void *item) SW_MUST_USE;
/* Is there a tensor of this name? */
bool sw_gguf_has_tensor(const sw_gguf_config_reader *r, const char *name);

#endif
