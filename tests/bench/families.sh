#!/bin/bash
# Every family of models from end to end: families.sh CSV
#
# For each recipe of tests/golden/recipes and each of W4A16 by gptq, FP8_DYNAMIC and NVFP4A16:
# quantizes a toy of the family; verifies it; holds the divergence of the codes against that of the
# floats that they stand for, with inputs rounded where the scheme rounds them (fake_quant_kl), of
# which it may be 1.05 times; converts to compressed-tensors and back, which must give the same
# bytes; and compares what lies outside of the decoder (towers, heads for further tokens) with the
# original by digests. CSV gets one line each. Prints what did not pass, and counts; exit code 1
# when something did not.
# ONLY=REGEX: of "family scheme" only those. JOBS: at a time. SCHEMES: others than the three, each
# with a method behind a colon if it is to be another ("W8A8:smoothquant+gptq").
set -u
cd "$(dirname "$0")/../.." || exit 2
csv=$1 build=${BUILD:-build/release}
for tool in expand_recipe tensor_digests fake_quant_kl; do
    make -s "$build/tests/tools/$tool" >/dev/null || exit 2
done
swage=$PWD/$build/swage tools=$PWD/$build/tests/tools recipes=$PWD/tests/golden/recipes
T=$(mktemp -d "${TMPDIR:-/tmp}/swage-families.XXXXXX") || exit 2
trap 'rm -rf "$T"' EXIT
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} swage tools recipes T
# ids below 310: those above stand for images and the like
for i in $(seq 0 3071); do
    printf '%b' "\\x$(printf %x $((i * i % 251)))\\x00"
done >"$T/calib.u16"

# said TEXT: of a report, the first figure behind it
said() { sed -n "s/^ *$1  *\([0-9.e+-]*\).*/\1/p" | head -n 1; }

# kl OUT MODEL OPTIONS...: verdict of the judge and mean divergence, "passed 0.0123"
kl() {
    local text
    text=$("$swage" verify "$1" --against "$2" --text "$recipes/$family/reference.safetensors" \
        --window "$window" --threads 1 -q "${@:3}" 2>&1)
    case $? in 0) echo -n 'passed ' ;; *) echo -n 'failed ' ;; esac
    echo "$(said 'KL(original || checkpoint)' <<<"$text") $(said 'kernel gap' <<<"$text")"
    grep -q '^verdict  *passed' <<<"$text" || tail -n 1 <<<"$text" >>"$T/$name.why"
}

# same_parts OUT MODEL: "N" tensors outside the decoder, all as they were; or "N, M differ"
same_parts() {
    local part n=0 n_other=0
    sed -n 's/.*"part": *"\([^"]*\)".*/\1/p' "$1/manifest.json" >"$T/$name.parts"
    "$tools/tensor_digests" "$1" >"$T/$name.have"
    while read -r part; do
        n=$((n + $(grep -c "^$part\." "$2.digests")))
        n_other=$((n_other + $(grep "^$part\." "$2.digests" | grep -vcxFf "$T/$name.have")))
    done <"$T/$name.parts"
    echo "$n$([ $n_other -eq 0 ] || echo ", $n_other differ")"
}

# there_and_back OUT: "same" when compressed-tensors keeps every byte of the tiles
there_and_back() {
    "$swage" convert "$1" --to compressed-tensors -o "$1.ct" -q >"$T/$name.log" 2>&1 &&
        "$swage" convert "$1.ct" --to swage -o "$1.back" -q >"$T/$name.log" 2>&1 || {
        tail -n 1 "$T/$name.log" >>"$T/$name.why"
        echo refused
        return
    }
    "$tools/tensor_digests" "$1.back" | cmp -s - "$T/$name.have" && echo same || echo differs
}

# the checkpoint of a line, as `one` says
make_one() {
    "$swage" quantize "$model" -o "$T/$name" --scheme "$scheme" --method "$method" \
        --calib "$T/calib.u16" --samples 24 --seq-len "$window" --threads 1 --format swage \
        "${extra[@]}" -q >"$T/$name.log" 2>&1
}

# one FAMILY SCHEME: a line
one() {
    local family=$1 scheme=${2%%:*} name=$1-${2/:/-} window=48 model=$T/$1 method=gptq extra=() n=''
    local served='  '
    local floats='' parts='' back='' ratio='' verdict=failed
    [[ $scheme = W4* ]] && extra=(--group-size 32)
    [ "$scheme" = W4A16 ] || method=rtn
    [[ $2 != *:* ]] || method=${2#*:}
    [[ $family != *_sparse ]] || window=16 # what their indexers let through
    : >"$T/$name.why"
    if make_one || { [[ $scheme = W4* ]] && grep -q 'groups of 32 do not' "$T/$name.log" &&
        extra=(--group-size channel) && make_one; }; then
        n=$(sed -n 's/^linears  *\([0-9]*\) quantized.*/\1/p' "$T/$name.log")
        served=$(kl "$T/$name" "$model" --gap-windows 1)
        floats=$("$tools/fake_quant_kl" "$model" "$T/$name" \
            "$recipes/$family/reference.safetensors" "$window" 2>>"$T/$name.why")
        parts=$(same_parts "$T/$name" "$model")
        back=$(there_and_back "$T/$name")
        ratio=$(awk -v a="$(cut -d' ' -f2 <<<"$served")" -v b="$floats" \
            'BEGIN { if (b > 0) printf "%.3f", a / b }')
        if [[ $served == passed* && $back == same && $parts != *differ* ]] &&
            awk -v r="$ratio" 'BEGIN { exit !(r && r < 1.05) }'; then
            verdict=passed
        fi
    else
        tail -n 1 "$T/$name.log" >>"$T/$name.why"
        ! grep -q "model_type: .* is not supported" "$T/$name.log" || verdict=unsupported
    fi
    echo "$family,$2,$n,${served// /,},$floats,$ratio,\"$parts\",$back,$verdict,\"$(
        head -n 1 "$T/$name.why" | tr '"' "'" | sed "s|$T/||g")\""
    rm -rf "${T:?}/$name" "$T/$name".*
}
export -f one make_one kl said same_parts there_and_back

for family in $(ls "$recipes"); do
    [ -d "$recipes/$family" ] || continue
    for scheme in ${SCHEMES:-W4A16 FP8_DYNAMIC NVFP4A16}; do echo "$family $scheme"; done
done | grep -E "${ONLY:-.}" >"$T/list"
cut -d' ' -f1 "$T/list" | sort -u | while read -r family; do
    "$tools/expand_recipe" "$recipes/$family" "$T/$family" &&
        "$tools/tensor_digests" "$T/$family" >"$T/$family.digests" || exit 2
done
echo 'family,scheme,linears,judge,kl,kernel_gap,kl_floats,ratio,outside,there_and_back,verdict,note' >"$csv"
xargs -P "${JOBS:-$(nproc)}" -L 1 bash -c 'one "$@"' one <"$T/list" >>"$csv"
tail -n +2 "$csv" | LC_ALL=C sort -o "$T/sorted" && { head -n 1 "$csv"; cat "$T/sorted"; } >"$T/csv"
cp "$T/csv" "$csv"
grep -v ',passed,"' "$csv" | tail -n +2
awk -F, 'NR > 1 { n += !/,unsupported,"/; p += /,passed,"[^"]*"$/ } END {
    printf "%d checkpoints of families, %d passed\n", n, p; exit !(n && n == p) }' "$csv"
