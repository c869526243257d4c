/* many.c - many test programs in one, for where each costs more to link than to run: the path by
 * which it is called says which. A list that the build writes, MANY_LIST, holds a row for each,
 *
 *   TEST(function, path)     whose main is `function`
 *   FUZZ(function, name)     an entry of tests/fuzz, of which replay_NAME feeds its corpus
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int fuzz_entry(const uint8_t *data, size_t size);

/* Some take no arguments, and what C says of them holds without a prototype. */
#define TEST(function, path) int function();
#define FUZZ(function, name) fuzz_entry function;
#include MANY_LIST
#undef TEST
#undef FUZZ

/* replay.c, and what it feeds. */
int many_replay(int argc, char **argv);
fuzz_entry many_entry;
static fuzz_entry *chosen;

int many_entry(const uint8_t *data, size_t size) { return chosen(data, size); }

static int ends_with(const char *text, const char *end)
{
    size_t n_text = strlen(text), n_end = strlen(end);

    return n_text > n_end && text[n_text - n_end - 1] == '/' &&
           strcmp(text + n_text - n_end, end) == 0;
}

int main(int argc, char **argv)
{
#define TEST(function, path) \
    if (ends_with(argv[0], path)) return function(argc, argv);
#define FUZZ(function, name) \
    if (ends_with(argv[0], "replay_" name)) { \
        chosen = function; \
        return many_replay(argc, argv); \
    }
#include MANY_LIST
    fprintf(stderr, "%s: no test is called so\n", argv[0]);
    return 2;
}
