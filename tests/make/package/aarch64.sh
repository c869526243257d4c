#!/bin/bash
# aarch64.sh [MIRROR] - the program for 64-bit Arm, compiled on x86-64 in a Debian with the libraries of both, and run
# in an emulator: it gives the same bytes as here. Needs root, debootstrap, qemu-aarch64-static and a mirror; says why
# it is skipped (77). The Debian is made once, in build/chroot. Correctness alone: an emulator says nothing of speed.
set -eu
mirror=${1:-http://deb.debian.org/debian}
suite=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
cross=${CROSS:-build/chroot/$suite-arm64}
here=${BUILD:-build/release}/swage
# shellcheck source=tests/make/package/chroot.bash
. "$(dirname "$0")/chroot.bash"
emulator=$(command -v qemu-aarch64-static) || skip 'no qemu-aarch64-static (Debian: qemu-user-static)'
[ "$(uname -m)" = x86_64 ] || skip 'it is for x86-64'
clean_debian "$suite" "$cross" "$mirror"
work_in "$(realpath "$cross")"
packages=$(sed -n '/^DEPS_PACKAGES/,/[^\\]$/p' tests/make/deps.mk | sed 's/.*:=//' | tr -d '\\\n' | xargs -n 1 |
    grep -v '^gcc$' | sed 's/$/:arm64/' | xargs)
in_root dpkg --add-architecture arm64
in_root apt-get update -qq >/dev/null 2>&1 || skip 'no mirror can be reached'
# shellcheck disable=SC2086
apt install -y --no-install-recommends make gcc libc6-dev gcc-aarch64-linux-gnu libgomp1:arm64 $packages
cp "$emulator" "$root/usr/bin/"
mkdir -p "$root/src/build"
# Older objects stay, so that a second time is quick.
git ls-files -z Makefile tools quant formats kernels verify tests/make calib_data | tar --null -T - -cf - | tar -xf - -C "$root/src"
touch "$root/src/build/.deps"
in_root make -C /src -j"${JOBS:-$(nproc)}" CONFIG=portable CC=aarch64-linux-gnu-gcc all | grep -v '^  CC' || true
# shellcheck disable=SC2016
arm() { in_root sh -c 'cd /src && exec qemu-aarch64-static build/portable/swage "$@"' swage "$@"; }

rm -rf "$root/src/out" "$root/src/tiles"
arm --version
arm quantize calib_data/tiny-llama --method rtn --scheme W4A16 --format compressed-tensors -o out -q >/dev/null
arm convert out --to swage -o tiles -q
arm verify out --against calib_data/tiny-llama --text calib_data/eval.u16 --window 64 --max-windows 1 --no-gap --max-kl 0.5 -q |
    grep -E '^(perplexity|KL|gate|verdict)'
arm generate tiles -p 'The function returns' -n 8 -q
if [ -x "$here" ]; then
    "$here" quantize calib_data/tiny-llama --method rtn --scheme W4A16 --format compressed-tensors -o "$root/src/out-x86" -q >/dev/null
    cmp "$root/src/out/model.safetensors" "$root/src/out-x86/model.safetensors" && echo 'the same bytes as here'
    rm -rf "$root/src/out-x86"
fi
echo "compiled for aarch64 and run by $("$emulator" --version | head -n 1)"
