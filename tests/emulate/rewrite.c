/* rewrite.c - CUDA C as C++ that a host compiler reads: rewrite FROM TO.
 *
 * Five things of CUDA's syntax have no other form in C++, so that macros do not reach them:
 *
 *   name<<<grid, block>>>(args)        emu_launch(name, grid, block)(args)
 *   __shared__ type a[n], b;           auto &a = emu_shared<type [n]>(...); and so on
 *   extern __shared__ type a[];        type *const a = (type *)emu_dynamic();
 *   asm volatile("text" : "=r"(x)...)  a call of the row that the text has in ptx.c
 *   (const void *)swk_name<...>        emu_entry(swk_name<...>), which knows the arguments
 *
 * and a kernel says its name as it begins. Everything else is copied; lines keep their numbers.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    char *at;
    size_t n, room;
} text;

static const char *path;

static void die(const char *why, const char *where)
{
    fprintf(stderr, "rewrite: %s: %s: %.60s\n", path, why, where);
    exit(1);
}

static void put(text *t, const char *from, size_t n)
{
    if (t->n + n + 1 > t->room) {
        t->room = 2 * (t->n + n) + 4096;
        t->at = realloc(t->at, t->room);
        if (!t->at) die("no memory", "");
    }
    memcpy(t->at + t->n, from, n);
    t->n += n;
    t->at[t->n] = '\0';
}

static void say(text *t, const char *form, ...)
{
    char line[4096];
    va_list args;
    int n;

    va_start(args, form);
    n = vsnprintf(line, sizeof line, form, args);
    va_end(args);
    if (n < 0 || n >= (int)sizeof line) die("a statement is too long", line);
    put(t, line, (size_t)n);
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool begins(const char *p, const char *word)
{
    const size_t n = strlen(word);

    return strncmp(p, word, n) == 0 && !is_word(p[n]);
}

/* Behind a comment, string or character that begins at p; p itself if none does. */
static const char *past_quiet(const char *p)
{
    const char *end = p;

    if (p[0] == '/' && p[1] == '*') {
        end = strstr(p + 2, "*/");
        if (!end) die("a comment does not end", p);
        return end + 2;
    }
    if (p[0] == '/' && p[1] == '/') return p + strcspn(p, "\n");
    if (*p != '"' && *p != '\'') return p;
    for (end = p + 1; *end != *p; end++) {
        if (*end == '\n') die("a string or character goes on in another line", p);
        if (*end == '\\') end++;
        if (!*end) die("a string or character does not end", p);
    }
    return end + 1;
}

static const char *past_blanks(const char *p)
{
    for (const char *q; *p; p = q) {
        q = isspace((unsigned char)*p) ? p + 1 : *p == '/' ? past_quiet(p) : p;
        if (q == p) break;
    }
    return p;
}

/* Behind the bracket that closes the one at p. Angles count where `angles` says so. */
static const char *past_bracket(const char *p, bool angles)
{
    const char *open = angles ? "([{<" : "([{", *close = angles ? ")]}>" : ")]}", *begin = p;
    int depth = 0;

    while (*p) {
        const char *q = past_quiet(p);

        if (q != p) {
            p = q;
            continue;
        }
        if (strchr(open, *p)) depth++;
        else if (strchr(close, *p) && --depth == 0) return p + 1;
        p++;
    }
    die("a bracket does not close", begin);
    return p;
}

/* The first of `stops` outside of brackets, at p or behind; `limit` if there is none. */
static const char *find_flat(const char *p, const char *limit, const char *stops, bool angles)
{
    while (p < limit) {
        const char *q = past_quiet(p);

        if (q != p) p = q;
        else if (strchr(stops, *p)) return p;
        else if (strchr(angles ? "([{<" : "([{", *p)) p = past_bracket(p, angles);
        else p++;
    }
    return limit;
}

static void keep_lines(text *out, const char *from, const char *to)
{
    for (; from < to; from++)
        if (*from == '\n') put(out, "\n", 1);
}

/* ---- shared memory ---- */

/* Behind __align__(n); n as a text, or that of a type without. */
static const char *past_align(const char *p, const char **n, int *n_chars)
{
    if (!begins(p, "__align__")) return p;
    *n = strchr(p, '(');
    p = past_bracket(*n, false);
    *n_chars = (int)(p - *n);
    return past_blanks(p);
}

/* One variable of a declaration, [begin, end), of which the first has its type in front. */
static void put_shared(text *out, const char *begin, const char *end, const char **type, int *n,
                       const char *align, int n_align)
{
    const char *dims = find_flat(begin, end, "[", true), *name = dims;

    while (name > begin && isspace((unsigned char)name[-1])) name--;
    dims = name;
    while (name > begin && is_word(name[-1])) name--;
    if (!*type) {
        *type = begin;
        *n = (int)(name - begin);
    }
    say(out, "auto &%.*s = emu_shared<%.*s%.*s>([] { static char key; return &key; }(), ",
        (int)(dims - name), name, *n, *type, (int)(end - dims), dims);
    if (align) say(out, "\"%.*s\", %.*s); ", (int)(dims - name), name, n_align, align);
    else say(out, "\"%.*s\", alignof(%.*s)); ", (int)(dims - name), name, *n, *type);
}

static const char *shared_variables(text *out, const char *p)
{
    const char *type = NULL, *align = NULL, *begin = past_blanks(p + strlen("__shared__")), *end;
    int n = 0, n_align = 0;

    begin = past_align(begin, &align, &n_align);
    end = find_flat(begin, begin + strlen(begin), ";", false);

    for (const char *q; begin < end; begin = past_blanks(q + 1)) {
        q = find_flat(begin, end, ",", true);
        put_shared(out, begin, q, &type, &n, align, n_align);
    }
    keep_lines(out, p, end);
    return end + 1;
}

/* `extern __shared__ type name[];` at p, or NULL. */
static const char *dynamic_variable(text *out, const char *p)
{
    const char *type = past_blanks(p + strlen("extern")), *end, *name, *align;
    int n;

    if (!begins(type, "__shared__")) return NULL;
    type = past_align(past_blanks(type + strlen("__shared__")), &align, &n);
    end = strchr(type, '[');
    if (!end) die("an array was awaited", p);
    for (name = end; is_word(name[-1]); name--) {}
    say(out, "%.*s*const %.*s = (%.*s*)emu_dynamic();", (int)(name - type), type,
        (int)(end - name), name, (int)(name - type), type);
    end = strchr(end, ';');
    return end + 1;
}

/* ---- instructions ---- */

/* A string at p that says what an operand is, before it or as an argument of a macro that makes
 * operands: "+f"(d[i]), SW_D16("+f", 0). Its macro in cuda_on_cpu.h, which a macro can be given
 * too; NULL for other strings. */
static const char *operand_kind(text *out, const char *p)
{
    const char *letter = p + 1 + strspn(p + 1, "=+&"), *next;

    if (*p != '"' || !islower((unsigned char)*letter) || letter[1] != '"') return NULL;
    next = past_blanks(letter + 2);
    if (*next != '(' && *next != ',' && *next != ')') return NULL;
    if (letter > p + 1) say(out, "EMU_OUT");
    else say(out, "EMU_IN_%c", *letter);
    return letter + 2;
}

/* The operands in [p, end), of which a '=' or '+' says that they are written. False for what is
 * neither an operand nor a macro. */
static bool put_operands(text *out, const char *p, const char *end)
{
    for (const char *q; (p = past_blanks(p)) < end; p = q + 1) {
        const char *letter, *value;

        q = find_flat(p, end, ",", false);
        value = strchr(p, '(');
        if (is_word(*p)) { /* a macro that makes several */
            for (const char *kind; p < q;) {
                kind = operand_kind(out, p);
                if (kind) p = kind;
                else say(out, "%c", *p++);
            }
            say(out, ", ");
            continue;
        }
        if (*p != '"' || !value || value > q) return false;
        letter = p + 1 + strspn(p + 1, "=+&");
        if (p[1] == '=' || p[1] == '+') say(out, "EMU_OUT(");
        else say(out, "EMU_IN_%c(", *letter);
        say(out, "%.*s), ", (int)(past_bracket(value, false) - value), value);
    }
    return true;
}

static const char *instruction(text *out, const char *p)
{
    const char *open = past_blanks(p + 3), *end, *part, *q;
    const size_t n = out->n;

    if (begins(open, "volatile")) open = past_blanks(open + strlen("volatile"));
    if (*open != '(') return NULL;
    end = past_bracket(open, false) - 1;
    part = find_flat(open + 1, end, ":", false);
    say(out, "EMU_PTX((%.*s), ", (int)(part - open - 1), open + 1);
    for (int i = 0; i < 2 && part < end; i++, part = q) {
        q = find_flat(part + 1, end, ":", false);
        if (!put_operands(out, part + 1, q)) {
            out->n = n;
            return NULL;
        }
    }
    say(out, ")");
    return end + 1;
}

/* ---- kernels ---- */

/* Put `call` before the name that the output ends in: name, or name<...>. */
static void put_before_name(text *out, const char *call)
{
    size_t at = out->n;
    char *name;

    if (at && out->at[at - 1] == '>')
        while (at && out->at[--at] != '<') {}
    while (at && is_word(out->at[at - 1])) at--;
    name = strdup(out->at + at);
    if (!name || !*name) die("a launch without a name", out->at + at);
    out->n = at;
    say(out, "%s(%s, ", call, name);
    free(name);
}

static const char *launch(text *out, const char *p)
{
    const char *end = strstr(p, ">>>");

    if (!end) die("a launch does not end", p);
    put_before_name(out, "emu_launch");
    put(out, p + 3, (size_t)(end - p - 3));
    say(out, ")");
    return end + 3;
}

/* `(const void *)swk_name<...>` at p, or NULL. */
static const char *entry(text *out, const char *p)
{
    static const char cast[] = "(const void *)";
    const char *name = p + sizeof cast - 1, *end;

    if (strncmp(p, cast, sizeof cast - 1) != 0) return NULL;
    while (isspace((unsigned char)*name) || (name[0] == '\\' && name[1] == '\n')) name++;
    if (strncmp(name, "swk_", 4) != 0) return NULL;
    end = name;
    while (is_word(*end)) end++;
    if (*end == '<') end = past_bracket(end, true);
    say(out, "emu_entry(%.*s)", (int)(end - name), name);
    return end;
}

/* From __global__ to the brace that opens the body, if there is one. */
static const char *kernel(text *out, const char *p)
{
    const char *q = p, *name = NULL;
    size_t n = 0;

    while (*q != '{' && *q != ';') {
        if (*q == '(') q = past_bracket(q, false);
        else if (is_word(*q)) {
            for (name = q, n = 0; is_word(*q); q++) n++;
            if (*q == '(' && strncmp(name, "swk_", 4) != 0) name = NULL;
            if (*q == '(' && name) break;
        } else q++;
    }
    if (*q != '(') return p;
    q = past_blanks(past_bracket(q, false));
    if (*q != '{') return p;
    put(out, p, (size_t)(q + 1 - p));
    say(out, " emu_enter(\"%.*s\");", (int)n, name);
    return q + 1;
}

static const char *in_directive(text *out, const char *p);

/* The statement at p in a macro: where instruction() has operands one by one there may be macros
 * that make several. */
static const char *instruction_of_macro(text *out, const char *p)
{
    const char *open, *end, *q;
    int n_parts = 0;

    if (!begins(p, "asm")) return NULL;
    open = past_blanks(p + 3);
    if (begins(open, "volatile")) open = past_blanks(open + strlen("volatile"));
    if (*open != '(') return NULL;
    end = past_bracket(open, false) - 1;
    say(out, "EMU_PTX((");
    for (p = open + 1; p < end; p = q) {
        q = find_flat(p, end, ":", false);
        while (p < q) p = in_directive(out, p);
        if (q < end) q++;
        say(out, n_parts++ ? ", " : "), ");
    }
    say(out, ")");
    return end + 1;
}

static const char *in_directive(text *out, const char *p)
{
    const char *q = p[0] == '\\' && p[1] == '\n' ? p + 2 : p + 1, *other = entry(out, p);
    const char *behind = past_quiet(p);

    if (!other) other = instruction_of_macro(out, p);
    if (!other) other = operand_kind(out, p);
    if (other) return other;
    if (is_word(*p))
        while (is_word(*q)) q++;
    else if (behind != p) q = behind;
    put(out, p, (size_t)(q - p));
    return q;
}

/* A line of the preprocessor with its continuations. */
static const char *directive(text *out, const char *p)
{
    while (*p && *p != '\n') p = in_directive(out, p);
    return p;
}

/* What stands for the words at p, or NULL if they stay. */
static const char *words(text *out, const char *p)
{
    if (begins(p, "extern")) return dynamic_variable(out, p);
    if (begins(p, "__shared__")) return shared_variables(out, p);
    if (begins(p, "asm")) return instruction(out, p);
    if (begins(p, "__global__")) {
        put(out, "__global__", strlen("__global__"));
        return kernel(out, p + strlen("__global__"));
    }
    return NULL;
}

static void rewrite(text *out, const char *p)
{
    bool is_new = true; /* nothing but blanks on this line so far */

    while (*p) {
        const char *q = past_quiet(p), *other = NULL;

        if (q != p) other = NULL;
        else if (*p == '#' && is_new) other = directive(out, p);
        else if (strncmp(p, "<<<", 3) == 0) other = launch(out, p);
        else if (*p == '(') other = entry(out, p);
        else if (is_word(*p)) {
            other = words(out, p);
            while (is_word(*q)) q++;
        }
        if (!other) {
            if (q == p) q = p + 1;
            put(out, p, (size_t)(q - p));
        }
        is_new = *p == '\n' || (is_new && isspace((unsigned char)*p));
        p = other ? other : q;
    }
}

int main(int argc, char **argv)
{
    text in = {0}, out = {0};
    char part[65536];
    FILE *f;
    size_t n;

    if (argc != 3) {
        fprintf(stderr, "usage: rewrite FROM TO\n");
        return 2;
    }
    path = argv[1];
    f = fopen(path, "rb");
    if (!f) die("cannot be read", "");
    while ((n = fread(part, 1, sizeof part, f)) > 0) put(&in, part, n);
    fclose(f);
    put(&in, "", 0);
    say(&out, "#line 1 \"%s\"\n", path);
    rewrite(&out, in.at);
    f = fopen(argv[2], "wb");
    if (!f || fwrite(out.at, 1, out.n, f) != out.n || fclose(f) != 0) die("cannot be written", "");
    free(in.at);
    free(out.at);
    return 0;
}
