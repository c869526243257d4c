#!/bin/bash
# first_steps.sh [MIRROR] - the first minutes of a stranger, in a Debian that has nothing: clone, `make demo`, a model by
# its id in a Hugging Face cache, the report, the command that the card names. Prints how long each step took. Needs
# root, debootstrap and a mirror; says why it is skipped (77). The model is the bundled one, laid out as a cache.
set -eu
mirror=${1:-http://deb.debian.org/debian}
suite=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
clean=${CHROOT:-build/chroot/$suite}
# shellcheck source=tests/make/package/chroot.bash
. "$(dirname "$0")/chroot.bash"
clean_debian "$suite" "$clean" "$mirror"
work_in_copy "$clean"
in_root apt-get update -qq >/dev/null 2>&1 || skip 'no mirror can be reached'

steps=
# step NAME COMMAND...: its output to the log, which is shown if it fails
step() {
    local name=$1 begin
    shift
    begin=$(date +%s%N)
    "$@" >"$root/log" 2>&1 || { tail -n 20 "$root/log"; echo "failed: $name"; exit 1; }
    steps+="$(awk "BEGIN { printf \"%8.1f s\", $(($(date +%s%N) - begin)) / 1e9 }")  $name"$'\n'
}
# shellcheck disable=SC2016
swage() { in_root sh -c 'cd /src && PATH=build:$PATH && exec swage "$@"' swage "$@"; }

# As `hf download org/name` leaves it: blobs by digest, a snapshot of links, a ref.
lay_out_cache() {
    local repo=$root/root/.cache/huggingface/hub/models--org--name commit=0123456789abcdef0123456789abcdef01234567 file sum
    mkdir -p "$repo/blobs" "$repo/refs" "$repo/snapshots/$commit"
    printf %s $commit >"$repo/refs/main"
    for file in "$root"/src/calib_data/tiny-llama/*.json "$root"/src/calib_data/tiny-llama/*.safetensors; do
        sum=$(sha256sum "$file" | cut -d' ' -f1)
        cp "$file" "$repo/blobs/$sum"
        ln -s "../../blobs/$sum" "$repo/snapshots/$commit/${file##*/}"
    done
}

step 'apt-get install make' in_root apt-get install -y --no-install-recommends make
step 'git clone (of this repository, on this machine)' git clone -q --depth 1 "file://$PWD" "$root/src"
step 'make demo: libraries, build and the whole job' in_root make -C /src demo
grep -q '^== Done in ' "$root/log" || { tail -n 5 "$root/log"; exit 1; }
lay_out_cache
in_root() { chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"; }
step 'swage doctor' swage doctor
step 'swage quantize org/name' swage quantize org/name -o /out --scheme W4A16 --format compressed-tensors \
    --calib calib_data/calib.txt --samples 16
step 'swage verify --html' swage verify /out --against org/name --text calib_data/eval.txt --max-windows 16 --max-kl 0.1 \
    --html /out.html
grep -q '&#10003; passed' "$root/out.html" || { echo 'the page does not say passed'; exit 1; }
grep -q '^ *vllm serve ' "$root/out/README.md" || { echo 'the card does not say how to serve it'; exit 1; }
printf '%s' "$steps"
echo "the card says: $(sed -n 's/^ *\(vllm serve .*\)/\1/p' "$root/out/README.md" | head -n 1)"
