#!/bin/sh
# deb.sh VERSION STAGE OUT SBOM - Debian packages of an installed tree, without debhelper.
#
# STAGE is what `make install DESTDIR=STAGE PREFIX=/usr LIBDIR=/usr/lib/MULTIARCH CUDA_DIR=/usr/lib/swage`
# left. Each file goes into the first package of this table whose pattern it matches; what none claims
# is an error, so that nothing that is installed later is forgotten. Dependencies are read from the
# binaries by dpkg-shlibdeps. The same tree gives the same bytes under one SOURCE_DATE_EPOCH.
#
#   libswage0      the shared library
#   libswage-dev   headers, static library, pkg-config files
#   swage-cuda     the CUDA half, if it was built
#   swage-mpi      the half for several hosts, if it was built: it depends on Open MPI
#   swage          the program and all of share/
set -eu
export LC_ALL=C
umask 022
version=$1-1 stage=$(realpath "$2") out=$3 sbom=$(realpath "$4")
here=$(cd "$(dirname "$0")" && pwd)
arch=$(dpkg --print-architecture)
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
maintainer=${DEB_MAINTAINER:-The Swage authors <swage@example.org>}
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Makefile)}"
rm -rf "$out"
mkdir -p "$out/debian"
cd "$out"

# package_of PATH: where a file goes.
package_of() {
    case $1 in
    usr/lib/"$multiarch"/libswage.so.*) echo libswage0 ;;
    usr/lib/swage/libswage_cuda.so | usr/lib/"$multiarch"/libswage_cuda.a | */swage-cuda.pc) echo swage-cuda ;;
    usr/lib/swage/libswage_mpi.so) echo swage-mpi ;;
    usr/include/* | usr/lib/"$multiarch"/libswage.* | */pkgconfig/swage*.pc) echo libswage-dev ;;
    usr/bin/* | usr/share/*) echo swage ;;
    *) echo "deb: no package for $1" >&2; return 1 ;;
    esac
}

find "$stage" ! -type d | sed "s|^$stage/||" | sort | while IFS= read -r path; do
    p=$(package_of "$path")
    mkdir -p "$p/$(dirname "$path")"
    cp -P --preserve=mode "$stage/$path" "$p/$path"
done

find . -type f -path '*/share/man/*' ! -name '*.gz' -exec gzip -9n {} +
find . -type f \( -path '*/bin/*' -o -name '*.so*' \) -exec strip --strip-unneeded --remove-section=.comment {} +
find . -type f -name '*.a' -exec strip --strip-debug --enable-deterministic-archives {} +
find . -type f -name '*.so*' -exec chmod 644 {} +

about() {
    case $1 in
    libswage0) echo "Section: libs|Multi-Arch: same||C library that reads and quantizes checkpoints of language models
 Swage quantizes language models and converts their checkpoints between the
 formats of inference engines.
 .
 This package holds the shared library of its C interface." ;;
    libswage-dev) echo "Section: libdevel|Multi-Arch: same|libswage0 (= $version)|C library that reads and quantizes checkpoints (development files)
 Swage quantizes language models and converts their checkpoints between the
 formats of inference engines.
 .
 This package holds the header of its C interface, libswage.h, and the static
 library with all headers for those who build an engine upon it." ;;
    swage-cuda) echo "Section: science|Multi-Arch: no|swage (= $version)|quantize language models on NVIDIA GPUs
 Swage quantizes language models and converts their checkpoints between the
 formats of inference engines.
 .
 This package holds the kernels that \"swage --device cuda\" loads, and the
 archive of them that an engine can link. It needs NVIDIA's driver." ;;
    swage-mpi) echo "Section: science|Multi-Arch: no|swage (= $version)|quantize language models on several hosts
 Swage quantizes language models and converts their checkpoints between the
 formats of inference engines.
 .
 This package lets mpirun start several processes of swage that share a run." ;;
    swage) echo "Section: science|Multi-Arch: foreign||quantize, convert and verify language models
 Swage quantizes language models to 2 to 8 bits, fp8, fp4 and the types of
 GGUF, converts checkpoints between the formats of inference engines without
 loss, or refuses, and judges the result with a second decoder." ;;
    esac
}

suggests() {
    found=
    for other in swage-cuda swage-mpi; do
        [ ! -d $other ] || found="$found${found:+, }$other (= $version)"
    done
    [ -z "$found" ] || echo "Suggests: $found"
}

# Versions of what a shared library offers, for those who link it.
shlibs() {
    echo "libswage 0 libswage0 (>= $version)" >libswage0/DEBIAN/shlibs
    echo 'activate-noawait ldconfig' >libswage0/DEBIAN/triggers
    dpkg-gensymbols -plibswage0 -v"${version%-*}" -Plibswage0 -Olibswage0/DEBIAN/symbols -q >/dev/null
}

printf 'Source: swage\nMaintainer: %s\n' "$maintainer" >debian/control
for p in libswage0 libswage-dev swage-cuda swage-mpi swage; do
    [ ! -d $p ] || printf '\nPackage: %s\nArchitecture: any\nDescription: x\n' $p >>debian/control
done
for p in libswage0 libswage-dev swage-cuda swage-mpi swage; do
    [ -d $p ] || continue
    doc=$p/usr/share/doc/$p
    mkdir -p "$doc" $p/DEBIAN
    printf 'swage (%s) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' "$version" "$maintainer" \
        "$(date -R -u -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.Debian.gz"
    gzip -9n <"$here/../../../.changelog.md" >"$doc/changelog.gz"
    { printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: swage\n\nFiles: *\n'
      printf 'Copyright: %s\nLicense: Expat\n' "$(sed -n 's/^Copyright (c) //p' "$here/../../../LICENSE")"
      sed -n '/^Permission/,$s/^/ /p' "$here/../../../LICENSE" | sed 's/^ *$/ ./'; } >"$doc/copyright"
    [ $p != libswage0 ] || shlibs
    [ $p != swage ] || cp "$sbom" "$doc/"
    about $p >about
    IFS='|' read -r section multi depends short <about
    binaries=$(find $p -type f \( -path '*/bin/*' -o -name '*.so*' \))
    shared=
    # shellcheck disable=SC2086
    [ -z "$binaries" ] || shared=$(dpkg-shlibdeps --ignore-missing-info -O $binaries 2>shlibdeps.log | sed 's/^shlibs:Depends=//')
    [ -z "$depends" ] || shared=$depends${shared:+, $shared}
    { printf 'Package: %s\nSource: swage\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' $p "$version" "$arch" "$maintainer"
      printf 'Installed-Size: %s\n' "$(du -k -s --apparent-size $p | cut -f1)"
      [ -z "$shared" ] || echo "Depends: $shared"
      [ $p != swage ] || suggests
      [ $p != libswage-dev ] || echo 'Recommends: libopenblas-dev, liblapacke-dev, libcjson-dev, libssl-dev, libpcre2-dev, libutf8proc-dev, libzstd-dev'
      printf '%s\n%s\nPriority: optional\n%sDescription: %s\n' "$section" "$multi" \
          "${HOMEPAGE:+Homepage: $HOMEPAGE
}" "$short"
      sed 1d about; } | sed '/^Multi-Arch: no$/d' >$p/DEBIAN/control
    (cd $p && find usr -type f | sort | xargs -d '\n' md5sum >DEBIAN/md5sums)
    find $p -type d -exec chmod 755 {} +
    find $p -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build $p "${p}_${version}_$arch.deb" >/dev/null
    echo "$3/${p}_${version}_$arch.deb"
done
