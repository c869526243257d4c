/* words.c - what names of modules say about them, as tables. See found.h. */
#include "formats/model/unknown/words.h"

#include <string.h>

typedef enum word_place { WHOLE, END, ANYWHERE } word_place;

typedef struct word {
    const char *text;
    word_place place; /* of one part of the name, between two dots */
} word;

/* Lists of layers, each followed by a number. */
static const word lists[] = {{"layers", WHOLE}, {"layer", WHOLE},  {"h", WHOLE},
                             {"blocks", WHOLE}, {"block", WHOLE},  {"decoder_layers", WHOLE}};

/* Parts of a model that are no decoder: engines run them in floats. */
static const word others[] = {{"vis", ANYWHERE},   {"image", ANYWHERE}, {"audio", ANYWHERE},
                              {"video", ANYWHERE}, {"speech", ANYWHERE}, {"mtp", ANYWHERE},
                              {"draft", ANYWHERE}, {"eagle", ANYWHERE}, {"projector", ANYWHERE}};

/* Matrices of a layer that engines keep in floats: routers, gates of one number a token, tables,
 * convolutions, norms, what sets the pace of recurrent mixers, what chooses keys. */
static const word kept[] = {
    {"gate", WHOLE},      {"wg", WHOLE},        {"_gate", END},        {"router", ANYWHERE},
    {"embed", ANYWHERE},  {"norm", ANYWHERE},   {"latent_proj", END},  {"conv1d", ANYWHERE},
    {"lora", ANYWHERE},   {"head", END},        {"rotary", ANYWHERE},  {"position", ANYWHERE},
    {"bias", ANYWHERE},   {"indexer", ANYWHERE}, {"dt_proj", WHOLE},   {"x_proj", WHOLE},
    {"in_proj_a", WHOLE}, {"in_proj_b", WHOLE}, {"in_proj_ba", WHOLE}, {"b_proj", WHOLE},
    {"f_a_proj", WHOLE},  {"f_b_proj", WHOLE},  {"g_a_proj", WHOLE},   {"g_b_proj", WHOLE}};

static bool fits(const word *w, const char *part, size_t n)
{
    const size_t m = strlen(w->text);

    if (m > n) return false;
    if (w->place == WHOLE) return m == n && !strncmp(part, w->text, m);
    if (w->place == END) return !strncmp(part + n - m, w->text, m);
    for (size_t i = 0; i + m <= n; i++)
        if (!strncmp(part + i, w->text, m)) return true;
    return false;
}

static bool is_among(const word *words, size_t n_words, const char *part, size_t n)
{
    for (size_t i = 0; i < n_words; i++)
        if (fits(&words[i], part, n)) return true;
    return false;
}

#define IS_AMONG(words, part, n) is_among(words, sizeof(words) / sizeof *(words), part, n)

bool sw_word_is_list(const char *part, size_t n) { return IS_AMONG(lists, part, n); }
bool sw_word_is_other(const char *part, size_t n) { return IS_AMONG(others, part, n); }
bool sw_word_is_kept(const char *part, size_t n) { return IS_AMONG(kept, part, n); }
