#!/bin/bash
# tarball_old.sh GLIBC [SUITE [MIRROR]] - the same archive from an older Debian, so that it runs on systems
# as old as that. Needs root, debootstrap and a mirror. The Debian is made once, in build/chroot; the
# archive lands in build/tarball.
set -euo pipefail
glibc=$1 suite=${2:-bullseye} mirror=${3:-http://deb.debian.org/debian}
# shellcheck source=tests/make/package/chroot.bash
. "$(dirname "$0")/chroot.bash"
clean_debian "$suite" "${CHROOT:-build/chroot/$suite}" "$mirror"
work_in "$(realpath "${CHROOT:-build/chroot/$suite}")"
in_root apt-get update -qq >/dev/null 2>&1 || skip 'no mirror can be reached'
# shellcheck disable=SC2046
apt install -y --no-install-recommends make gcc binutils $(build_packages)
tarball_inside GLIBC="$glibc"
