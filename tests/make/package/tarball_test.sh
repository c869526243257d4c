#!/bin/bash
# tarball_test.sh ARCHIVE CALIB_DATA [ROOT] - the archive, unpacked in a folder whose name has a blank, finds its own
# libraries and does its work; with ROOT, a system that has none of them (a minimal Debian, say), there. One for
# another machine needs a ROOT with that machine's glibc, and an emulator here; without it is skipped (77).
set -euo pipefail
archive=$(realpath "$1") data=$(realpath "$2") root=${3:-}
machine=${archive##*-linux-} run=()
machine=${machine%%-*}
if [ "$machine" != "$(uname -m)" ]; then
    emulator=$(command -v "qemu-$machine-static") && [ -n "$root" ] ||
        { echo "skipped: ${archive##*/} needs qemu-$machine-static and a system of its own"; exit 77; }
fi
dir=$(mktemp -d "${root:+$root}/tmp/swage test.XXXXXX")
has_proc= # the loader asks /proc where the program lies
trap '[ -z "$has_proc" ] || umount "$root/proc"; rm -rf "$dir"' EXIT
if [ -n "$root" ] && ! mountpoint -q "$root/proc"; then
    mount -t proc proc "$root/proc"
    has_proc=true
fi
tar -xf "$archive" -C "$dir"
cp -r "$data/tiny-llama" "$data/eval.txt" "$dir/"
inside=${dir#"$root"}
if [ -n "${emulator:-}" ]; then
    cp "$emulator" "$dir/emulator"
    run=("$inside/emulator")
fi
here() {
    if [ -z "$root" ]; then env -u LD_LIBRARY_PATH "$@"; else env -i PATH=/usr/bin:/bin "$(command -v chroot)" "$root" "${run[@]}" "$@"; fi
}
swage=$(cd "$dir" && echo swage-*/bin/swage)
here "$inside/$swage" --version
loader=$(readelf -l "$dir/$swage" | sed -n 's/.*program interpreter: \(.*\)\]/\1/p')
here "$loader" --list "$inside/$swage" >"$dir/ldd"
grep -q 'not found' "$dir/ldd" && { grep 'not found' "$dir/ldd"; exit 1; }
# all but glibc and the kernel's own come out of the archive
others=$(grep -F '=>' "$dir/ldd" | grep -vF "$(dirname "$swage")/../lib/" |
    grep -vE '^[[:space:]]*(libc|libm|libpthread|libdl|librt)\.so' || true)
[ -z "$others" ] || { echo "taken from the system: $others"; exit 1; }
here "$inside/$swage" quantize "$inside/tiny-llama" --method rtn --scheme W4A16 --format compressed-tensors -o "$inside/out" -q >/dev/null
some=(--max-kl 0.2)
[ -z "${emulator:-}" ] || some=(--window 64 --max-windows 1 --no-gap --max-kl 0.5)
here "$inside/$swage" verify "$inside/out" --against "$inside/tiny-llama" --text "$inside/eval.txt" "${some[@]}" --quiet >/dev/null
echo "runs in ${root:-this system}: $(basename "$archive")"
