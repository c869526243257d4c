#!/bin/bash
# The judge on sound checkpoints, all of which it must pass: sound_sweep.sh CSV
#
# Quantizes cuts of the bundled models by every scheme, method and format that go together, and
# converts them to every type of GGUF; each is verified against its model with a text and without,
# with its manifest and without. CSV gets one line a checkpoint: how many of those verdicts there
# were, how many passed, and the first that did not. Prints those that did not pass, and counts.
# ONLY=REGEX: of "model format scheme method" only those. JOBS: at a time. LAYERS: of the cuts (2).
# Exit code 1 when a verdict is not "passed" or nothing was made.
set -u
cd "$(dirname "$0")/../.." || exit 2
csv=$1 build=${BUILD:-build/release}
swage=$build/swage corpus=$build/tests/tools/judge_corpus
T=$(mktemp -d "${TMPDIR:-/tmp}/swage-sound.XXXXXX") || exit 2
trap 'rm -rf "$T"' EXIT
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} swage T
names() { "$swage" list "$1" | tail -n +2 | cut -d' ' -f1; }

# verdict NAME MODEL [--text FILE...]: one more, counted.
verdict() {
    local said
    n=$((n + 1))
    said=$("$swage" verify "$T/$1" --against "$T/$2" --threads 1 -q "${@:3}" 2>&1 >/dev/null) &&
        { n_passed=$((n_passed + 1)); return; }
    [ -n "$first" ] || first="${manifest}${3:+, a text}: ${said#swage verify: }"
}

# one MODEL FORMAT SCHEME METHOD: a line, or none where the format cannot hold the scheme.
one() {
    local name=$1-$2-$3-$4 n=0 n_passed=0 first='' run=0 manifest rule=()
    local text=(--text calib_data/eval.u16 --window 128 --max-windows 2 --gap-windows 1)
    local calib=(--calib calib_data/calib.u16 --samples 6 --seq-len 256)
    [ "$4" != plain-rule ] || rule=(--plain-rule)
    if [ "$1" = gpt_oss ]; then
        calib=(--calib "$T/toy.u16" --samples 4 --seq-len 32 --ignore self_attn)
        text=(--text "$T/toy.u16" --window 32 --max-windows 2)
    fi
    if [ "$2" = gguf ]; then
        name=$name.gguf
        "$swage" convert "$T/$1" --to gguf --type "$3" -o "$T/$name" -q --threads 1 \
            --no-tokenizer "${rule[@]}" >"$T/$name.log" 2>&1
    else
        "$swage" quantize "$T/$1" -o "$T/$name" -q --format "$2" --scheme "$3" --method "$4" \
            --threads 1 --allow-fallback "${calib[@]}" >"$T/$name.log" 2>&1
    fi
    run=$?
    if [ $run -eq 0 ]; then
        for manifest in 'manifest' 'no manifest'; do
            [ "$manifest" = manifest ] || rm -f "$T/$name/manifest.json"
            verdict "$name" "$1"
            verdict "$name" "$1" "${text[@]}"
            [ "$2" != gguf ] || break # has none
        done
    elif [ $run -ne 4 ] && ! grep -q 'is for schemes' "$T/$name.log"; then # nor refused
        first="cannot be made: $(tail -n 1 "$T/$name.log")" n=1
    fi
    rm -rf "${T:?}/$name" "$T/$name.log"
    [ $n -gt 0 ] || return 0
    first=${first//$T\//}
    echo "$1,$2,$3,$4,$n,$n_passed,\"${first//\"/\'}\""
}
export -f one verdict

for model in llama moe; do
    from=calib_data/tiny-llama
    [ $model = llama ] || from=tests/golden/models/tiny-moe
    "$corpus" cut $from "${LAYERS:-2}" "$T/$model" || exit 2
done
# a source whose weights lie on codes already
"$swage" quantize "$T/llama" -o "$T/codes" -q --format compressed-tensors --scheme W4A16 --method awq \
    --calib calib_data/calib.u16 --samples 6 --seq-len 256 >"$T/log" 2>&1 || { cat "$T/log"; exit 2; }
ln -s "$PWD/tests/golden/arch/gpt_oss" "$T/gpt_oss"
for i in $(seq 0 2047); do printf '%b' "\\x$(printf %x $((i * 37 % 251)))\\x00"; done >"$T/toy.u16"

for format in $(names formats); do
    for scheme in $(names schemes); do
        for method in $(names methods); do
            printf "%s $format $scheme $method\n" llama moe codes
            [ "$format" != mxfp4 ] || echo "gpt_oss $format $scheme $method"
        done
    done
done >"$T/list"
for type in F32 F16 BF16 Q4_0 Q4_1 Q8_0 Q4_K Q6_K MXFP4; do
    printf "%s gguf $type searched\n" llama moe
    [[ $type != Q4_[01] ]] || printf "%s gguf $type plain-rule\n" llama moe
done >>"$T/list"
echo 'model,format,scheme,method,verdicts,passed,first that did not' >"$csv"
grep -E "${ONLY:-.}" "$T/list" |
    xargs -P "${JOBS:-$(nproc)}" -L 1 bash -c 'one "$@"' one >>"$csv"
tail -n +2 "$csv" | LC_ALL=C sort -o "$T/sorted" && { head -n 1 "$csv"; cat "$T/sorted"; } >"$T/csv"
cp "$T/csv" "$csv"
awk -F, 'NR > 1 && $5 != $6' "$csv"
awk -F, 'NR > 1 { n++; v += $5; p += $6 } END {
    printf "%d sound checkpoints, %d verdicts, %d passed\n", n, v, p; exit !(n && v == p) }' "$csv"
