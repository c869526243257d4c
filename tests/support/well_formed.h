/* well_formed.h - is a text well-formed XML, as far as pages of ours use it? */
#ifndef SW_TESTS_SUPPORT_WELL_FORMED_H
#define SW_TESTS_SUPPORT_WELL_FORMED_H

#include <stdbool.h>
#include <stddef.h>

/* Tags that match, quoted attributes that are named once, entities that XML or numbers give, no
 * stray brackets, CDATA that ends. A doctype may come first. On false *why is a line, in a buffer
 * of the callee's. */
bool is_well_formed(const char *text, size_t n_bytes, const char **why);

#endif
