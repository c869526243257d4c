#!/usr/bin/env bash
# What `make install` leaves: a program that runs from elsewhere, and a library with its headers
# that a stranger's program compiles and links against.
. "$(dirname "$0")/lib.bash"
[ "${BUILD:-build/release}" = build/release ] || { echo 'only the release build is installed'; exit 77; }
make install PREFIX="$T/usr" >"$T/log" 2>&1 || fail "make install: $(tail -n 3 "$T/log")"
expect 0 '' env -C "$T" usr/bin/swage --version
cat >"$T/user.c" <<'END'
#include <stdio.h>
#include "formats/file/safetensors.h"
#include "verify/verify.h"
int main(int argc, char **argv)
{
    sw_err err = {0};
    sw_st *st = NULL;
    if (argc < 2 || sw_st_open(&st, argv[1], &err) != SW_OK) return (void)puts(err.text), err.code;
    printf("%lld tensors\n", (long long)sw_st_count(st));
    sw_st_close(st);
    return 0;
}
END
cc -std=c11 -D_GNU_SOURCE -Wall -Werror -I"$T/usr/include/swage" "$T/user.c" -L"$T/usr/lib" -lswage -fopenmp \
    -llapacke -lopenblas -lcjson -lcrypto -lpcre2-8 -lzstd -lm -o "$T/user" 2>"$T/log" ||
    fail "compile: $(head -n 3 "$T/log")"
expect 0 '' "$T/user" "$TINY"
[ "$(cat "$T/stdout")" = '56 tensors' ] || fail "$(cat "$T/stdout")"
expect 5 '' "$T/user" "$T/none"
finish
