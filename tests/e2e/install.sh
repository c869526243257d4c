#!/usr/bin/env bash
# What `make install` leaves: a program that runs from elsewhere, and two libraries with their headers
# that a stranger's programs compile and link against by what swage.pc and swage-static.pc say; and
# that `make uninstall` takes it all away.
. "$(dirname "$0")/lib.bash"
[ "${BUILD:-build/release}" = build/release ] || { echo 'only the release build is installed'; exit 77; }
made_by_one install PREFIX="$T/usr" >"$T/log" 2>&1 || fail "make install: $(tail -n 3 "$T/log")"
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
# flags_of NAME: what pkg-config says; or the two lines that it would join, where there is none.
flags_of() {
    local pc=$T/usr/lib/pkgconfig/$1.pc
    if command -v pkg-config >/dev/null; then
        PKG_CONFIG_PATH=${pc%/*} pkg-config --cflags --libs "$1"
    else
        sed -nE 's/^(Cflags|Libs): //p' "$pc" |
            sed "s|\${libdir}|$T/usr/lib|; s|\${includedir}|$(sed -n 's/^includedir=//p' "$pc")|; s|\${prefix}|$T/usr|"
    fi
}
pc=$T/usr/lib/pkgconfig/swage.pc
[ "$(sed -n 's/^prefix=//p' "$pc")" = "$T/usr" ] || fail "prefix in swage.pc: $(head -n 1 "$pc")"
version=$(sed -n 's/^Version: //p' "$pc")
"$T/usr/bin/swage" --version | grep -q "^swage $version " || fail "version in swage.pc: $version"

flags=$(flags_of swage-static) || fail 'pkg-config swage-static'
# shellcheck disable=SC2086
cc -std=c11 -Wall -Werror "$T/user.c" $flags -o "$T/user" 2>"$T/log" || fail "compile: $(head -n 3 "$T/log")"
expect 0 '' "$T/user" "$TINY"
[ "$(cat "$T/stdout")" = '56 tensors' ] || fail "$(cat "$T/stdout")"
expect 5 '' "$T/user" "$T/none"
ldd "$T/user" | grep -q libswage && fail 'swage-static links the shared library'

# The C interface, from a folder that knows nothing of the source.
cp tests/examples/*.c "$T/"
export LD_LIBRARY_PATH=$T/usr/lib
flags=$(flags_of swage) || fail 'pkg-config swage'
for example in tests/examples/*.c; do
    name=$(basename "$example" .c)
    # shellcheck disable=SC2086
    (cd "$T" && cc -std=c11 -Wall -Wextra -Werror "$name.c" $flags -lm -o "$name") 2>"$T/log" ||
        fail "compile $name: $(head -n 3 "$T/log")"
    expect 2 "usage: $name" "$T/$name"
done
expect 0 '' "$T/inspect" "$TINY"
[ "$(head -n 1 "$T/stdout")" = 'llama, BF16: 56 tensors, 13638144 bytes' ] || fail "$(head -n 1 "$T/stdout")"
ldd "$T/inspect" | grep -q "libswage.so.0 => $T/usr/lib/libswage.so.0" || fail 'another libswage'

# pages and completions, each as the program prints it
share=$T/usr/share
cmp -s "$share/bash-completion/completions/swage" <("$SWAGE" completion bash) || fail 'no completion for bash'
cmp -s "$share/zsh/site-functions/_swage" <("$SWAGE" completion zsh) || fail 'no completion for zsh'
cmp -s "$share/fish/vendor_completions.d/swage.fish" <("$SWAGE" completion fish) || fail 'no completion for fish'
cmp -s "$share/man/man1/swage.1" <("$SWAGE" man) || fail 'no swage(1)'
for c in $("$SWAGE" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    cmp -s "$share/man/man1/swage-$c.1" <("$SWAGE" man "$c") || fail "no swage-$c(1)"
done
if command -v man >/dev/null && man --version >/dev/null 2>&1; then
    man -M "$share/man" -w swage-quantize >"$T/log" 2>&1 || fail "man does not find swage-quantize: $(head -n 1 "$T/log")"
fi
if command -v zsh >/dev/null; then # found through fpath alone, as a user has it
    zsh -f -c 'fpath=($1 $fpath); autoload -Uz compinit; compinit -D -u; print $_comps[swage]' - "$share/zsh/site-functions" >"$T/log" 2>&1
    grep -qx _swage "$T/log" || fail "zsh does not find _swage: $(head -n 1 "$T/log")"
fi

# a header or a page of an older version does not stay, and uninstalling leaves no file
touch "$T/usr/include/swage/formats/old.h" "$share/man/man1/swage-old.1"
made_by_one install PREFIX="$T/usr" >"$T/log" 2>&1 || fail "make install again: $(tail -n 3 "$T/log")"
[ ! -e "$T/usr/include/swage/formats/old.h" ] || fail 'an old header stays'
[ ! -e "$share/man/man1/swage-old.1" ] || fail 'an old page stays'
make uninstall PREFIX="$T/usr" >"$T/log" 2>&1 || fail "make uninstall: $(tail -n 3 "$T/log")"
left=$(find "$T/usr" ! -type d -o -path '*/swage')
[ -z "$left" ] || fail "uninstall leaves: $left"
finish
