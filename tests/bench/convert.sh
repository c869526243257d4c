#!/bin/bash
# How fast a conversion is against copying the same files: convert.sh [GB [FROM [TO [ROUNDS]]]].
# Makes a synthetic checkpoint of about that size under ${TMPDIR:-/tmp}, then in turns copies it
# (and syncs) and converts it, each time with the source out of the system's cache. Prints one CSV
# line a round; tests/bench/convert.csv keeps those that are worth it. Needs three times the room.
set -eu
cd "$(dirname "$0")/../.."
gb=${1:-8} from=${2:-gptq} to=${3:-compressed-tensors} rounds=${4:-3}
make -s build/release/tests/tools/synthetic_model all >/dev/null
T=$(mktemp -d "${TMPDIR:-/tmp}/swage-bench.XXXXXX")
trap 'rm -rf "$T"' EXIT
layers=$(awk "BEGIN { n = int(($gb - 0.52) / 0.1135 + 0.5); print n < 1 ? 1 : n }")
build/release/tests/tools/synthetic_model "$T/in" 4096 14336 "$layers" 32 8 32000 "$from"

forget() { # what the system remembers of the source
    sync
    for file in "$T"/in/*; do
        dd of="$file" oflag=nocache conv=notrunc,fdatasync count=0 status=none
    done
}
# seconds, processor seconds, KiB at the peak
timed() { /usr/bin/time -f '%e %U %S %M' -o "$T/time" "$@" >/dev/null; cat "$T/time"; }

bytes=$(cat "$T"/in/*.safetensors | wc -c)
commit=$(git describe --always --dirty)
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
for _ in $(seq "$rounds"); do
    forget
    copy=$(timed sh -c "cp -r '$T/in' '$T/copy' && sync '$T'/copy/*")
    rm -rf "$T/copy"
    forget
    mine=$(timed build/swage convert "$T/in" --to "$to" -o "$T/out" --quiet)
    rm -rf "$T/out"
    echo "$copy $mine" | awk -v head="$(date -u +%Y-%m-%d),$commit,$cpu,$(nproc),$from,$to" \
        -v gb="$(awk "BEGIN { print $bytes / 1e9 }")" '{
        printf "%s,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.0f\n", head, gb, $1, $5, $1 / $5,
               ($2 + $3) / gb, ($6 + $7) / gb, $8 / 1024 }'
done
