#!/usr/bin/env bash
# What `make install` leaves: a program that runs from elsewhere, and a library with its headers
# that a stranger's program compiles and links against by what swage.pc says; and that
# `make uninstall` takes it all away.
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
pc=$T/usr/lib/pkgconfig/swage.pc
[ "$(sed -n 's/^prefix=//p' "$pc")" = "$T/usr" ] || fail "prefix in swage.pc: $(head -n 1 "$pc")"
if command -v pkg-config >/dev/null; then
    flags=$(PKG_CONFIG_PATH=${pc%/*} pkg-config --cflags --libs swage) || fail 'pkg-config'
    version=$(PKG_CONFIG_PATH=${pc%/*} pkg-config --modversion swage)
else # the two lines that it would join
    flags=$(sed -nE 's/^(Cflags|Libs): //p' "$pc" | sed "s|\${libdir}|$T/usr/lib|; s|\${includedir}|$T/usr/include/swage|")
    version=$(sed -n 's/^Version: //p' "$pc")
fi
"$T/usr/bin/swage" --version | grep -q "^swage $version " || fail "version in swage.pc: $version"
# shellcheck disable=SC2086
cc -std=c11 -Wall -Werror "$T/user.c" $flags -o "$T/user" 2>"$T/log" || fail "compile: $(head -n 3 "$T/log")"
expect 0 '' "$T/user" "$TINY"
[ "$(cat "$T/stdout")" = '56 tensors' ] || fail "$(cat "$T/stdout")"
expect 5 '' "$T/user" "$T/none"

# a header of an older version does not stay, and uninstalling leaves no file
touch "$T/usr/include/swage/formats/old.h"
make install PREFIX="$T/usr" >"$T/log" 2>&1 || fail "make install again: $(tail -n 3 "$T/log")"
[ ! -e "$T/usr/include/swage/formats/old.h" ] || fail 'an old header stays'
make uninstall PREFIX="$T/usr" >"$T/log" 2>&1 || fail "make uninstall: $(tail -n 3 "$T/log")"
left=$(find "$T/usr" ! -type d -o -path '*/swage')
[ -z "$left" ] || fail "uninstall leaves: $left"
finish
