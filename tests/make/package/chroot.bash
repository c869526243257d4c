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
