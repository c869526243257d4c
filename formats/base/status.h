/* status.h - how every fallible function of Swage reports.
 *
 * A function that can fail returns a must-use sw_code and takes a caller-owned
 * sw_err last. The first failure wins: a second sw_fail on the same sw_err keeps
 * the text already there, and upper layers only put context in front of it.
 * The codes are the exit codes of the program, so no table maps one to the other.
 *
 * Valid as C11 and as C++17, since nvcc reads it too. Depends on nothing.
 */
#ifndef SW_FORMATS_BASE_STATUS_H
#define SW_FORMATS_BASE_STATUS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SW_MUST_USE __attribute__((warn_unused_result))
#define SW_PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))

typedef enum sw_code {
    SW_OK = 0,
    SW_E_GATE = 1,        /* a verification gate failed */
    SW_E_USAGE = 2,       /* the command line or a recipe is wrong */
    SW_E_FORMAT = 3,      /* input bytes are malformed */
    SW_E_UNSUPPORTED = 4, /* well-formed, but nothing here can serve it */
    SW_E_IO = 5,
    SW_E_NOMEM = 6,
    SW_E_CUDA = 7,
    SW_E_NOISY = 8,       /* times scatter too much for a verdict on speed */
    SW_E_BUG = 70,        /* our own invariant broke */
    SW_E_CANCELLED = 130  /* a signal asked the run to stop */
} sw_code;

#define SW_ERR_TEXT_BYTES 768

/* Caller-owned, zero-initialised, allocation-free: it must work when memory is out. */
typedef struct sw_err {
    sw_code code;
    const char *src_file;
    int src_line;
    char text[SW_ERR_TEXT_BYTES];
} sw_err;

/* Record a failure and return `code`. Keeps an earlier failure. `err` may be NULL. The text is
 * one line: control bytes, which names from files may hold, become '?'. */
sw_code sw_fail_at(sw_err *err, sw_code code, const char *src_file, int src_line, const char *fmt,
                   ...) SW_PRINTF(5, 6);

#define SW_FAIL(err, code, ...) sw_fail_at((err), (code), __FILE__, __LINE__, __VA_ARGS__)

/* Put "fmt: " in front of the text of a recorded failure; does nothing without one. */
void sw_err_prefix(sw_err *err, const char *fmt, ...) SW_PRINTF(2, 3);

/* Short name of a code, for JSON reports: "ok", "format", ... */
const char *sw_code_name(sw_code code);

#ifdef __cplusplus
}
#endif
#endif
