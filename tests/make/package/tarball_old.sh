#!/bin/bash
# tarball_old.sh VERSION GLIBC [SUITE [MIRROR]] - the same archive from an older Debian, so that it runs on systems
# as old as that. Needs root, debootstrap and a mirror. The Debian is made once, in build/chroot; the
# archive lands in build/tarball.
set -euo pipefail
version=$1 glibc=$2 suite=${3:-bullseye} mirror=${4:-http://deb.debian.org/debian}
root=$(realpath -m "${CHROOT:-build/chroot/$suite}")
# shellcheck source=tests/make/package/chroot.bash
. "$(dirname "$0")/chroot.bash"
clean_debian "$suite" "$root" "$mirror"
work_in "$root"
packages=$(sed -n '/^DEPS_PACKAGES/,/[^\\]$/p' tests/make/deps.mk | sed 's/.*:=//' | tr -d '\\\n')
# shellcheck disable=SC2086
in_root apt-get install -y --no-install-recommends make binutils $packages >"$root/log" 2>&1 || skip "apt: $(tail -n 1 "$root/log")"
rm -rf "$root/src/tools" "$root/src/tests/make"
mkdir -p "$root/src"
# Older objects stay, so that a second time is quick.
git ls-files -z Makefile LICENSE .changelog.md tools quant formats kernels verify tests/make calib_data/calib.txt |
    tar --null -T - -cf - | tar -xf - -C "$root/src"
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
in_root sh -c "cd /src && SOURCE_DATE_EPOCH=$epoch make -j${JOBS:-$(nproc)} tarball GLIBC=$glibc" | grep -v '^  CC'
mkdir -p build/tarball
cp "$root/src/build/tarball/swage-$version-linux"*.tar.gz build/tarball/
