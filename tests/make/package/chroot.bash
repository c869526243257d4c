# chroot.bash - a Debian to work in, for scripts that root runs by hand. Source it; it sets $root.
skip() { echo "skipped: $*"; exit 77; }

# clean_debian SUITE DIR MIRROR: DIR holds a minimal Debian of that suite, made once.
clean_debian() {
    [ "$(id -u)" -eq 0 ] || skip 'only root can make a chroot'
    [ ! -x "$2/usr/bin/apt" ] || return 0
    command -v debootstrap >/dev/null || skip 'no debootstrap'
    mkdir -p "$2"
    debootstrap --variant=minbase "$1" "$2" "$3" >"$2.log" 2>&1 || skip "debootstrap: $(tail -n 1 "$2.log")"
}

# work_in DIR: $root is DIR, with /proc until the script ends.
work_in() {
    root=$1
    mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
    trap 'umount "$root/proc" 2>/dev/null || true' EXIT
}

# work_in_copy DIR: $root is a copy of DIR, which is gone when the script ends. One file system, so that nothing of
# the host's is ever removed.
work_in_copy() {
    root=$(mktemp -d)
    trap 'umount "$root/proc" 2>/dev/null || true; rm -rf --one-file-system "$root"' EXIT
    cp -a "$1/." "$root/"
    mount -t proc proc "$root/proc"
}

in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }

# apt WORD...: apt-get, whose last lines are shown when it fails.
apt() { in_root apt-get "$@" >"$root/log" 2>&1 || { tail -n 20 "$root/log"; exit 1; }; }

# build_packages: the libraries that the program is built with
build_packages() {
    sed -n '/^DEPS_PACKAGES/,/[^\\]$/p' tests/make/deps.mk | sed 's/.*:=//' | tr -d '\\\n' | xargs -n 1 | grep -v '^gcc$'
}

# tarball_inside WORD...: `make tarball WORD...` of this source in $root, its archive in build/tarball here. Older
# objects stay, so that a second time is quick.
tarball_inside() {
    local epoch
    rm -rf "$root/src/tools" "$root/src/tests/make" "$root/src/build/tarball"
    mkdir -p "$root/src/build" build/tarball
    git ls-files -z Makefile LICENSE .changelog.md tools quant formats kernels verify tests/make calib_data/calib.txt |
        tar --null -T - -cf - | tar -xf - -C "$root/src"
    epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    touch "$root/src/build/.deps"
    in_root env SOURCE_DATE_EPOCH="$epoch" make -C /src -j"${JOBS:-$(nproc)}" tarball "$@" 2>&1 | grep -vE '^(  CC|find: |make(\[1\])?: (warning|Entering|Leaving))'
    cp "$root"/src/build/tarball/*.tar.gz build/tarball/
}
