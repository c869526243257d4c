#!/bin/bash
# tarball.sh VERSION STAGE OUT_DIR SBOM [GLIBC] - an archive of the program that runs from wherever it is unpacked.
#
# STAGE is what `make install DESTDIR=STAGE PREFIX=/` left, linked with an rpath of its own library folder.
# All libraries but those of glibc lie beside it, with their copyright files; glibc comes from the
# system, which must have at least the version in the archive's name: the newest that any file in
# it asks for. With GLIBC (2.31), a newer one is an error that names file and symbol. CC and RUN are
# those of make: of another machine its compiler and its emulator.
set -euo pipefail
export LC_ALL=C
umask 022
# shellcheck source=tests/make/package/libraries.bash
. "$(dirname "$0")/libraries.bash"
version=$1 stage=$2 out=$3 sbom=$4 most=${5:-}
tool() { ${CC:-cc} "$@"; } # CC may be two words
machine=$(tool -dumpmachine) strip=$(tool -print-prog-name=strip) objdump=$(tool -print-prog-name=objdump)
machine=${machine%%-*}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Makefile)}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
top=$tree/swage
cp -a "$stage/." "$top"
mkdir -p "$top/share/doc/swage/licenses"

# is_glibc NAME: a part of glibc, which must be the system's
is_glibc() {
    case $1 in ld-linux* | libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libmvec.so.*) true ;; *) false ;; esac
}
libraries_of "$top/bin/swage" "$top"/lib/libswage.so.? | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u | while read -r name path; do
    if is_glibc "$name" || [ "${name#libswage}" != "$name" ]; then continue; fi
    cp -L "$path" "$top/lib/$name"
    owner=$({ dpkg-query -S "$path" || dpkg-query -S "$(realpath "$path")" || dpkg-query -S "${path#/usr}" ||
        dpkg-query -S "/usr$path"; } 2>/dev/null | head -n 1 | sed -E 's/(:[a-z0-9]+)?: .*//')
    [ -z "$owner" ] || cp -L "/usr/share/doc/$owner/copyright" "$top/share/doc/swage/licenses/$owner"
done
find "$top" -type f \( -path '*/bin/*' -o -name '*.so*' \) -exec "$strip" --strip-unneeded {} + 2>/dev/null
cp LICENSE "$top/share/doc/swage/"
cp .changelog.md "$top/share/doc/swage/changelog.md"
cp "$sbom" "$top/share/doc/swage/"
# Archives and their headers are for the machine that built them, and so is what binds to its MPI.
rm -rf "$top"/lib/*.a "$top"/lib/libswage_mpi.so "$top/include/swage" "$top"/lib/pkgconfig/swage-static.pc "$top"/lib/pkgconfig/swage-cuda.pc
sed -i "s|^prefix=.*|prefix=\${pcfiledir}/../..|; s|=//*|=/|" "$top/lib/pkgconfig/swage.pc"

# floor: "VERSION FILE SYMBOL" of the newest version of glibc that a file asks for
floor() {
    find "$top" -type f \( -path '*/bin/*' -o -name '*.so*' \) | while read -r file; do
        "$objdump" -T "$file" | awk -v file="${file#"$top"/}" '/\*UND\*/ { for (i = 1; i <= NF; i++) if ($i ~ /GLIBC_[0-9.]+/) {
            v = $i; gsub(/.*GLIBC_|[^0-9.]/, "", v); print v, file, $NF } }'
    done | sort -V | tail -n 1
}
read -r needs file symbol <<<"$(floor)"
[ -n "$needs" ] || { echo "tarball: no symbols of glibc were found" >&2; exit 1; }
if [ -n "$most" ] && [ "$(printf '%s\n' "$needs" "$most" | sort -V | tail -n 1)" != "$most" ]; then
    echo "tarball: $file asks for $symbol of glibc $needs, $most is wanted; build where that is (make tarball-old)" >&2
    exit 1
fi
name=swage-$version-linux-$machine-glibc$needs
mv "$top" "$tree/$name"
find "$tree/$name" -exec touch -h -d "@$epoch" {} +
mkdir -p "$out"
tar --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' -C "$tree" -cf "$out/$name.tar" "$name"
gzip -6n -f "$out/$name.tar"
echo "$out/$name.tar.gz: needs glibc $needs, for $symbol in $file"
