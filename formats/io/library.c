/* library.c - see library.h. */
#include "formats/io/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/io/file.h"

/* NULL when there is no such file; a file that cannot be opened says why, and ends the search. */
static void *open_at(const char *path, int mode, char *why, size_t why_bytes)
{
    void *library = access(path, F_OK) == 0 ? dlopen(path, mode) : NULL;

    if (!library && access(path, F_OK) == 0) (void)snprintf(why, why_bytes, "%s", dlerror());
    return library;
}

static void *search(const char *name, int mode, char *why, size_t why_bytes)
{
    static const char *const beside[] = {"", "../lib/", "../lib/swage/"};
    char program[SW_PATH_BYTES], path[SW_PATH_BYTES + 80];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    void *library = NULL;

    program[n > 0 ? n : 0] = '\0';
    if (strrchr(program, '/')) strrchr(program, '/')[1] = '\0';
    for (int i = 0; i < 3 && !library && !why[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s%.40s", program, beside[i], name);
        library = open_at(path, mode, why, why_bytes);
    }
    return library || why[0] ? library : dlopen(name, mode);
}

void *sw_library_open(const sw_library *library, char *why, size_t why_bytes)
{
    const int mode = RTLD_NOW | (library->is_global ? RTLD_GLOBAL : RTLD_LOCAL);
    const char *named = getenv(library->variable);
    void *handle;

    why[0] = '\0';
    if (named && *named) {
        handle = open_at(named, mode, why, why_bytes);
        if (!handle && !why[0]) (void)snprintf(why, why_bytes, "%.300s: no such file", named);
        return handle;
    }
    handle = search(library->name, mode, why, why_bytes);
    if (!handle && !why[0])
        (void)snprintf(why, why_bytes, "there is no %s beside the program, in the lib directory "
                       "beside that, or where the system keeps libraries; %s", library->name,
                       library->remedy);
    return handle;
}
