/* gguf_pre.c - the table of gguf_pre.h, as llama.cpp knows the names in autumn 2026.
 *
 * llama.cpp cuts with the C++ standard library, which has neither Unicode classes nor (?i:). Where
 * it therefore only comes near the expression of the models that a name was made for, the row has
 * the expression of the models, and the comment says in what llama.cpp differs from it.
 */
#include "formats/gguf/gguf_pre.h"

#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LINES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define OTHER "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define DIGIT "\\p{N}"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTIONS "|" WORD "|\\p{N}{1,3}" OTHER LINES
#define QWEN2 CONTRACTIONS "|" WORD "|\\p{N}" OTHER LINES
#define PUNCTUATION "[\\p{P}\\$\\+<=>\\^~\\|`]+"
#define THREE_DIGITS "[0-9][0-9][0-9]"
/* A word begins where small letters are followed by a capital. ENDING is what may follow a word
 * without a cut. */
#define CASED(ENDING)                                                                        \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" ENDING "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" \
    LOWER "*" ENDING
#define GPT4O CASED(CONTRACTIONS "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" LINES
/* Digits form groups of three, counted from the right. */
#define FROM_RIGHT "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))"
#define CJK_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define CJK_WIDE "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define PUNCT_WORD                                                                       \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?" \
    "[\\p{L}\\p{M}]+"
#define DEEPSEEK3 PUNCT_WORD "| ?[\\p{P}\\p{S}]+[\\r\\n]*" LINES
#define STOPS " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
#define NOT_HAN_UPPER "(?:(?!\\p{Han})" UPPER ")"
#define NOT_HAN_LOWER "(?:(?!\\p{Han})" LOWER ")"
#define KIMI                                                                                 \
    "\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN_UPPER "*" NOT_HAN_LOWER "+" CONTRACTIONS      \
    "?|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN_UPPER "+" NOT_HAN_LOWER "*" CONTRACTIONS "?"          \
    "|\\p{N}{1,3}" OTHER LINES
#define SPACE_RUNS                                                                           \
    "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)"          \
    "|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"
/* These are the letters of scripts with capitals and small letters, as a list of 2023 has them. */
#define CASED_SCRIPTS                                                                        \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"           \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"   \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"            \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                 \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"           \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"           \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}"  \
    "\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"   \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}"           \
    "\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"            \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}"             \
    "\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}"  \
    "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"   \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"            \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"           \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"         \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"   \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
#define WIDE_MARKS \
    "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"
#define SCRIPTS_WITHOUT_BLANKS                                                               \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{8c48}-\\x{faff}\\x{3040}-\\x{309f}"          \
    "\\x{30a0}-\\x{30ff}\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{e7f}"             \
    "\\x{e80}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}"             \
    "\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+"
#define EAST_ASIAN                                                                           \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}"        \
    "\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}"              \
    "\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|" CJK_KANA

#define SPLITS(name, ...) static const char *const name[] = {__VA_ARGS__, NULL}

SPLITS(gpt2, GPT2);
SPLITS(digits_gpt2, DIGIT, GPT2);
SPLITS(llama3, LLAMA3);
SPLITS(qwen2, QWEN2);
/* This has [\p{L}\p{M}] where others have [\p{L}], so that marks stay with their letters. */
SPLITS(qwen35, CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
               "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" LINES);
SPLITS(jais2, CONTRACTIONS "|" WORD "|\\p{N}{1,3}" OTHER SPACE_RUNS);
SPLITS(deepseek_llm, "[\\r\\n]", "\\s?[" CASED_SCRIPTS "]+", WIDE_MARKS, "\\s+$", CJK_WIDE,
       "\\p{N}+");
/* The expression is that of the models. Their vocabulary has no token of several digits, so single
 * digits and runs of them give the same ids. */
SPLITS(deepseek_llm_digits, "[\\r\\n]", "\\s?[" CASED_SCRIPTS "]+", WIDE_MARKS, "\\s+$", CJK_WIDE,
       DIGIT);
SPLITS(deepseek_coder, "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK_WIDE, DIGIT);
SPLITS(deepseek3, "\\p{N}{1,3}", CJK_KANA, DEEPSEEK3);
SPLITS(spark, "\\p{N}{1,3}", CJK_KANA,
       PUNCT_WORD "| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+", DIGIT);
/* llama.cpp counts every letter as a capital and as a small letter, and a mark as neither. */
SPLITS(youtu, EAST_ASIAN, CASED(CONTRACTIONS "?") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" LINES);
SPLITS(falcon, PUNCTUATION, GPT2, THREE_DIGITS);
SPLITS(falcon_digits, PUNCTUATION, GPT2, "\\p{N}+", THREE_DIGITS);
SPLITS(last_resort, "[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", THREE_DIGITS);
SPLITS(stops, STOPS);
SPLITS(stops_digits, STOPS, DIGIT);
/* llama.cpp counts every letter beyond ASCII as a capital and as a small letter, and a mark as no
 * letter. */
SPLITS(tekken, CASED("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" LINES);
SPLITS(gpt4o, GPT4O);
/* llama.cpp groups all of \p{N} in threes, also before a letter. */
SPLITS(tiny_aya, "\\d{1,3}(?=(?:\\d{3})*\\b)", GPT4O);
SPLITS(chameleon, "<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )",
       DIGIT, "[\\p{P}!-/:-@\\[-`{-~]", GPT2);
/* llama.cpp does not tell capitals from small letters, and counts a mark as no letter. */
SPLITS(kimi, KIMI);
SPLITS(superbpe, "\\p{N}+", "(?=(\\d{3})+(?!\\d))");
SPLITS(bailing, "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}"
                "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+");
SPLITS(seed_coder, CONTRACTIONS "|" WORD "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" LINES);
SPLITS(ufakzeka, WORD "|\\p{N}" OTHER LINES);
SPLITS(afmoe, FROM_RIGHT, SCRIPTS_WITHOUT_BLANKS, DEEPSEEK3);
SPLITS(laguna, "[^\\n]+|[\\n]+", QWEN2);
SPLITS(exaone_moe, CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+"
                   "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+");
SPLITS(minicpm5, "\\p{N}{1,3}", CONTRACTIONS "|" WORD "|\\p{N}+" OTHER LINES);
static const char *const whole[] = {NULL};

#define NFC SW_GGUF_PRE_NFC
#define WHOLE SW_GGUF_PRE_WHOLE
#define BOS SW_GGUF_PRE_BOS
#define CLEAN SW_GGUF_PRE_CLEAN
#define PIECES SW_GGUF_PRE_PIECES

/* Of several names with one meaning the one that most versions of llama.cpp know comes first.
 * llama.cpp never applies NFC; rows have it where the models do. */
const sw_gguf_pre sw_gguf_pres[] = {
    {"llama-bpe", llama3, WHOLE | BOS | CLEAN},
    {"llama3", llama3, WHOLE | BOS | CLEAN},
    {"llama-v3", llama3, WHOLE | BOS | CLEAN},
    {"falcon3", llama3, WHOLE | BOS | CLEAN},
    {"falcon-h1", llama3, WHOLE | BOS | CLEAN},
    {"pixtral", llama3, WHOLE | BOS | CLEAN},
    {"midm-2.0", llama3, WHOLE | BOS | CLEAN},
    {"lfm2", llama3, WHOLE | BOS | CLEAN},
    {"jina-v5-nano", llama3, WHOLE | BOS | CLEAN},
    {"dbrx", llama3, CLEAN},
    {"smaug-bpe", llama3, CLEAN},
    {"chatglm-bpe", llama3, CLEAN},
    {"glm4", llama3, WHOLE | CLEAN},
    {"glm5", llama3, WHOLE | CLEAN},
    {"qwen2", qwen2, NFC},
    {"deepseek-r1-qwen", qwen2, NFC},
    {"kormo", qwen2, NFC},
    {"f2llmv2", qwen2, NFC},
    {"megrez", qwen2, NFC | CLEAN},
    {"hunyuan", qwen2, 0},
    {"stablelm2", qwen2, CLEAN},
    {"solar-open", qwen2, 0},
    {"grok-2", qwen2, 0},
    {"qwen35", qwen35, NFC},
    {"qwen35", qwen35, 0},
    {"gpt-2", gpt2, CLEAN},
    {"olmo", gpt2, NFC | CLEAN},
    {"olmo", gpt2, CLEAN},
    {"mpt", gpt2, NFC | CLEAN},
    {"mpt", gpt2, CLEAN},
    {"trillion", gpt2, 0},
    {"granite-docling", gpt2, 0},
    {"jais", gpt2, CLEAN},
    {"exaone4", gpt2, CLEAN},
    {"phi-2", gpt2, CLEAN},
    {"gigachat", gpt2, CLEAN},
    {"a.x-4.0", gpt2, CLEAN},
    {"mellum", gpt2, CLEAN},
    {"modern-bert", gpt2, CLEAN},
    {"jina-es", gpt2, CLEAN},
    {"jina-de", gpt2, CLEAN},
    {"jina-v2-es", gpt2, CLEAN},
    {"jina-v2-de", gpt2, CLEAN},
    {"jina-v2-code", gpt2, CLEAN},
    {"jina-v1-en", gpt2, CLEAN},
    {"roberta-bpe", gpt2, CLEAN},
    {"smollm", digits_gpt2, 0},
    {"starcoder", digits_gpt2, CLEAN},
    {"refact", digits_gpt2, CLEAN},
    {"command-r", digits_gpt2, NFC},
    {"command-r", digits_gpt2, 0},
    {"codeshell", digits_gpt2, CLEAN},
    {"exaone", digits_gpt2, CLEAN},
    {"minerva-7b", digits_gpt2, CLEAN},
    {"mellum2", digits_gpt2, CLEAN},
    {"tekken", tekken, WHOLE | BOS},
    {"gpt-4o", gpt4o, 0},
    {"llama4", gpt4o, 0},
    {"kanana2", gpt4o, 0},
    {"talkie", gpt4o, 0},
    {"minimax-m2", gpt4o, 0},
    {"granite-embed-multi-97m", gpt4o, WHOLE},
    {"tiny_aya", tiny_aya, 0},
    {"cohere2moe", tiny_aya, 0},
    {"deepseek-llm", deepseek_llm, 0},
    {"deepseek-llm", deepseek_llm_digits, 0},
    {"deepseek-coder", deepseek_coder, 0},
    {"deepseek-v3", deepseek3, 0},
    {"hunyuan-dense", deepseek3, 0},
    {"joyai-llm", deepseek3, 0},
    {"hy_v4", deepseek3, 0},
    {"spark2_5", spark, 0},
    {"youtu", youtu, WHOLE},
    {"falcon", falcon, CLEAN},
    {"falcon", falcon_digits, CLEAN},
    {"poro-chat", stops, 0},
    {"bloom", stops, CLEAN},
    {"gpt3-finnish", stops, CLEAN},
    {"viking", stops_digits, 0},
    {"chameleon", chameleon, BOS},
    {"kimi-k2", kimi, 0},
    {"superbpe", superbpe, 0},
    {"bailingmoe", bailing, 0},
    {"bailingmoe2", bailing, 0},
    {"llada-moe", bailing, 0},
    {"seed-coder", seed_coder, 0},
    {"ufakzeka", ufakzeka, 0},
    {"afmoe", afmoe, 0},
    {"laguna", laguna, 0},
    {"exaone-moe", exaone_moe, CLEAN},
    {"jais-2", jais2, CLEAN},
    {"minicpm5", minicpm5, WHOLE | CLEAN},
    {"default", last_resort, CLEAN},
    {"gemma4", whole, PIECES | BOS | CLEAN},
    {"granite-embed-multi-311m", whole, PIECES | BOS | CLEAN},
    {"sarvam-moe", whole, PIECES},
};
const int sw_gguf_n_pres = (int)(sizeof sw_gguf_pres / sizeof *sw_gguf_pres);

const sw_gguf_pre *sw_gguf_pre_find(const char *name)
{
    for (int i = 0; i < sw_gguf_n_pres; i++)
        if (!strcmp(sw_gguf_pres[i].name, name)) return &sw_gguf_pres[i];
    return NULL;
}
