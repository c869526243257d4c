/* library.h - finds a half of the program that is a shared object, opened when it is needed. */
#ifndef SW_FORMATS_IO_LIBRARY_H
#define SW_FORMATS_IO_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct sw_library {
    const char *name;     /* "libswage_cuda.so" */
    const char *variable; /* of the environment: names another file */
    const char *remedy;   /* where there is none: "build it with ..." */
    bool is_global;       /* what it brings along is looked up in by further libraries */
} sw_library;

/* It lies beside the program, or in the lib directory beside the program's or its folder swage, or
 * where the system keeps libraries. Returns a handle of dlopen that stays open until the program
 * ends, or NULL with the reason in `why`. */
void *sw_library_open(const sw_library *library, char *why, size_t why_bytes);

#endif
