#!/bin/bash
# deb_test.sh DEBS CALIB_DATA EXAMPLES [MIRROR] - the packages in a Debian that has never seen Swage: installed by
# apt with what they depend on, used, and removed without a trace. Needs root, debootstrap and a mirror;
# says why it is skipped (77). The Debian is made once and kept in build/chroot, a copy of it is used.
set -eu
debs=$(realpath "$1") data=$(realpath "$2") examples=$(realpath "$3") mirror=${4:-http://deb.debian.org/debian}
suite=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
clean=${CHROOT:-build/chroot/$suite}
# shellcheck source=tests/make/package/chroot.bash
. "$(dirname "$0")/chroot.bash"
clean_debian "$suite" "$clean" "$mirror"
work_in_copy "$clean"
mkdir "$root/debs" "$root/data" "$root/examples"
cp "$debs"/*.deb "$root/debs/"
cp -r "$data/." "$root/data/"
cp "$examples"/*.c "$root/examples/"
listing() { (cd "$root" && find . -xdev \( -path ./proc -o -path ./debs -o -path ./out -o -path ./examples \) -prune -o ! -type d -print | sort); }

in_root apt-get update -qq >/dev/null 2>&1 || skip 'no mirror can be reached'
apt install -y --no-install-recommends gcc libc6-dev pkg-config
before=$(listing | grep -iE 'swage' || true)
[ -z "$before" ] || { echo "Swage was there before: $before"; exit 1; }

debs=$(cd "$root" && printf '/%s ' debs/*.deb)
# shellcheck disable=SC2086
apt install -y --no-install-recommends $debs
in_root swage --version
in_root swage quantize /data/tiny-llama --method rtn --scheme W4A16 --format compressed-tensors -o /out -q
in_root swage verify /out --against /data/tiny-llama --text /data/eval.txt --max-kl 0.2 --quiet >/dev/null
in_root swage report /out -o /out/report.html -q
for example in "$root"/examples/*.c; do
    name=$(basename "$example" .c)
    in_root sh -c "cc -std=c11 -Wall -Werror /examples/$name.c \$(pkg-config --cflags --libs swage) -lm -o /examples/$name"
done
in_root /examples/inspect /out | head -n 1
in_root /examples/quantize /data/tiny-llama model.layers.0.mlp.up_proj
# shellcheck disable=SC2016,SC2046
apt purge -y $(in_root dpkg-query -W -f '${Package} ' '*swage*')
after=$(listing | grep -iE 'swage' | grep -v '^./var/cache/apt/\|^./var/log/' || true)
[ -z "$after" ] || { echo "left behind: $after"; exit 1; }
in_root dpkg --audit
echo "installed, used and removed in $suite"
