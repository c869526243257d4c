#!/usr/bin/env bash
# Debian packages of a small installed tree: each file in the right one, dependencies from the binaries, the
# same bytes twice, and an error for a file that no package takes. `make deb` and `make deb-test` do the
# whole, by hand.
. "$(dirname "$0")/lib.bash"
command -v dpkg-shlibdeps >/dev/null && command -v cc >/dev/null || { echo 'no dpkg-dev'; exit 77; }
DEB=$PWD/tests/make/package/deb.sh
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
lib=$T/stage/usr/lib/$multiarch
mkdir -p "$lib/pkgconfig" "$T/stage/usr/bin" "$T/stage/usr/include/swage" "$T/stage/usr/share/man/man1"
echo 'int sw_a(void); int sw_a(void) { return 1; }' >"$T/a.c"
echo '#include <math.h>
int main(int argc, char **argv) { (void)argv; return (int)cbrt(argc) - 1; }' >"$T/main.c"
cc -shared -fPIC -Wl,-soname,libswage.so.0 "$T/a.c" -o "$lib/libswage.so.0.1.0" || fail cc
cc "$T/main.c" -lm -o "$T/stage/usr/bin/swage" || fail cc
ln -s libswage.so.0.1.0 "$lib/libswage.so.0"
ln -s libswage.so.0 "$lib/libswage.so"
ar rcs "$lib/libswage.a"
echo x >"$T/stage/usr/include/libswage.h"
echo x >"$lib/pkgconfig/swage.pc"
echo .TH >"$T/stage/usr/share/man/man1/swage.1"
echo '{}' >"$T/swage.spdx.json"
# what the packages contain is made before them, in a fresh tree as well
make -pn deb 2>/dev/null | grep -q '^deb:.*swage\.spdx\.json' || fail 'make deb does not wait for the list of what is linked'
build() { SOURCE_DATE_EPOCH=1700000000 sh "$DEB" 0.1.0 "$T/stage" "$1" "$T/swage.spdx.json"; }
build "$T/one" >"$T/list" 2>"$T/log" || fail "deb.sh: $(cat "$T/log")"
build "$T/two" >/dev/null 2>&1
[ "$(wc -l <"$T/list")" -eq 3 ] || fail "packages: $(cat "$T/list")"
arch=$(dpkg --print-architecture)
for p in swage libswage0 libswage-dev; do
    cmp "$T/one/${p}_0.1.0-1_$arch.deb" "$T/two/${p}_0.1.0-1_$arch.deb" || fail "$p is not the same again"
    dpkg-deb -c "$T/one/${p}_0.1.0-1_$arch.deb" | awk '{print $6}' >"$T/$p.files"
done
has() { grep -q "$2" "$T/$1.files" || fail "$1 lacks $2"; }
has swage '\./usr/bin/swage$'
has swage '/man1/swage.1.gz$'
has swage '/doc/swage/swage.spdx.json$'
has libswage0 '/libswage.so.0$'
has libswage0 '/libswage.so.0.1.0$'
has libswage-dev '/libswage.so$'
has libswage-dev '/libswage.a$'
has libswage-dev '/libswage.h$'
has libswage-dev '/swage.pc$'
for p in swage libswage0 libswage-dev; do has $p "/doc/$p/copyright"; done
depends() { dpkg-deb -f "$T/one/$1_0.1.0-1_$arch.deb" Depends; }
[[ $(depends swage) == *'libc6 ('* ]] || fail "swage depends: $(depends swage)"
[ "$(depends libswage-dev)" = 'libswage0 (= 0.1.0-1)' ] || fail "libswage-dev depends: $(depends libswage-dev)"
dpkg-deb -I "$T/one/libswage0_0.1.0-1_$arch.deb" symbols | grep -q ' sw_a@Base 0.1.0' || fail 'symbols of libswage0'
mkdir -p "$T/stage/usr/games"
echo x >"$T/stage/usr/games/stranger"
build "$T/three" >/dev/null 2>"$T/log" && fail 'a stray file is packaged'
grep -q 'no package for usr/games/stranger' "$T/log" || fail "$(cat "$T/log")"
finish
