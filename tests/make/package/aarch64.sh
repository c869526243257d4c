#!/bin/bash
# aarch64.sh GLIBC [SUITE [MIRROR]] - the archive for 64-bit Arm, compiled on x86-64 in an older Debian with the
# libraries of both, and used in an emulator: in a folder that has that Debian's glibc and nothing else it quantizes
# to the same bytes as here, passes its verdict and writes text. Needs root, debootstrap, qemu-aarch64-static and a
# mirror; says why it is skipped (77). The Debian is made once, in build/chroot; the archive lands in build/tarball.
# Correctness alone: an emulator says nothing of speed.
set -euo pipefail
glibc=$1 suite=${2:-bullseye} mirror=${3:-http://deb.debian.org/debian}
cross=${CROSS:-build/chroot/$suite-arm64} data=calib_data
here=${BUILD:-build/release}/swage
# shellcheck source=tests/make/package/chroot.bash
. "$(dirname "$0")/chroot.bash"
emulator=$(command -v qemu-aarch64-static) || skip 'no qemu-aarch64-static (Debian: qemu-user-static)'
[ "$(uname -m)" = x86_64 ] || skip 'it is for x86-64'
clean_debian "$suite" "$cross" "$mirror"
work_in "$(realpath "$cross")"
in_root dpkg --add-architecture arm64
in_root apt-get update -qq >/dev/null 2>&1 || skip 'no mirror can be reached'
# shellcheck disable=SC2046
apt install -y --no-install-recommends make gcc libc6-dev gcc-aarch64-linux-gnu libgomp1:arm64 $(build_packages | sed 's/$/:arm64/')
cp "$emulator" "$root/usr/bin/"
rm -f build/tarball/*-aarch64-*
tarball_inside GLIBC="$glibc" CC=aarch64-linux-gnu-gcc RUN=qemu-aarch64-static
archive=$(echo build/tarball/*-aarch64-*.tar.gz)

# A system of glibc alone: what the archive does not bring must be in it.
bare=$(mktemp -d)
trap 'umount "$root/proc" "$bare/proc" 2>/dev/null || true; rm -rf --one-file-system "$bare"' EXIT
mkdir "$bare/proc" "$bare/tmp"
mount -t proc proc "$bare/proc"
in_root dpkg -L libc6:arm64 | grep -E '\.so(\.[0-9.]+)?$' | sed 's|^/||' | tar -C "$root" -T - -cf - | tar -xf - -C "$bare"
bash "$(dirname "$0")/tarball_test.sh" "$archive" "$data" "$bare"

[ -x "$here" ] || { echo 'the bytes were not compared: build/release/swage is not built'; exit 0; }
tar -xf "$archive" -C "$bare"
cp -r "$data/tiny-llama" "$emulator" "$bare/"
arm() { (cd "$bare" && env -i "$(command -v chroot)" . "/${emulator##*/}" "$(echo swage-*)/bin/swage" "$@"); }
rtn=(--method rtn --scheme W4A16 --format compressed-tensors -q)
arm quantize tiny-llama "${rtn[@]}" -o out >/dev/null
"$here" quantize "$data/tiny-llama" "${rtn[@]}" -o "$bare/out-here" >/dev/null
cmp "$bare/out/model.safetensors" "$bare/out-here/model.safetensors"
echo 'the same bytes as here'
arm convert out --to swage -o tiles -q
arm generate tiles -p 'The function returns' -n 8 -q
echo "$archive: compiled for aarch64 and run by $("$emulator" --version | head -n 1)"
