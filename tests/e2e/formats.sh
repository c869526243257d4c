#!/bin/bash
# Every format, scheme and method: quantize, read back, judge; and every planted fault is caught.
. "$(dirname "$0")/lib.bash"
toy_tokens 4096 >"$T/calib.u16"
toy_tokens 8192 | tail -c 512 >"$T/eval.u16"
names() { "$SWAGE" list "$1" | tail -n +2 | cut -d' ' -f1; }
LENGTH=64 WINDOWS=(--window 64 --max-windows 2)
judge() { "$SWAGE" verify "$1" --against "$TOY" --text "$T/eval.u16" "${WINDOWS[@]}" --quiet "${@:2}"; }
quantize() { "$SWAGE" quantize "$TOY" --quiet --calib "$T/calib.u16" --seq-len $LENGTH --samples 2 "$@"; }

for format in $(names formats); do
    for scheme in $(names schemes); do
        rm -rf "$T/out"
        quantize -o "$T/out" --format "$format" --scheme "$scheme" >"$T/stdout" 2>"$T/stderr"
        case $? in
            0) ;;
            4) # a format may refuse a scheme, with the reason and a remedy, before any work
                said=$(<"$T/stderr")
                [[ $said == ?*[^$'\n'] && $said != *$'\n'* ]] || fail "$format $scheme: $said"
                [[ $said == *--* || $said == *use* ]] || fail "no remedy: $said"
                absent "$T/out"
                echo "refused: $format $scheme: $said"
                continue ;;
            *) fail "$format $scheme: $(<"$T/stderr")"; continue ;;
        esac
        expect 0 '' judge "$T/out"
        expect 0 '' "$SWAGE" inspect "$T/out/model.safetensors"
        grep -q "\"format\": *\"$format\"" "$T/out/manifest.json" || fail "manifest of $format"
    done
done

# groups and widths that a scheme does not name
for set in '--bits 8 --group-size 64' '--bits 3 --group-size 32 --asym' '--bits 2 --group-size channel' \
    '--act-order gar' '--act-order none --sequential layer' '--method rtn --group-size channel'; do
    rm -rf "$T/out"
    # shellcheck disable=SC2086
    expect 0 '' quantize -o "$T/out" $set
    expect 0 '' judge "$T/out"
done

# shards, ignored linears, and tensors that are copied bit by bit
rm -rf "$T/out"
expect 0 '' quantize -o "$T/out" --shard-size 100K --ignore 'layers\.0\.mlp' --format gptq
[ "$(find "$T/out" -name '*.safetensors' | wc -l)" -gt 2 ] || fail 'not sharded'
expect 0 '' judge "$T/out" --json
grep -Eq '"missing":[[:space:]]*0,' "$T/stdout" || fail 'coverage'

# scalars without dimensions, as other writers store scales of a tensor
rm -rf "$T/out"
expect 0 '' quantize -o "$T/out" --format fp8 --scheme FP8
rm "$T/out/manifest.json"
LC_ALL=C sed -i 's/"shape":\[1\]/"shape":[] /g' "$T/out/model.safetensors"
grep -aq '"shape":\[\] ' "$T/out/model.safetensors" || fail "no scalar"
expect 0 '' judge "$T/out"

# scales of an eight-bit cache: written, judged, and missed when one is gone or broken
LENGTH=128 WINDOWS=(--window 128) # the limit on KL is for more text
for form in compressed-tensors/fp8 fp8/fp8 compressed-tensors/int8; do
    rm -rf "$T/cached" "$T/again"
    format=${form%/*} codes=${form#*/} scheme=FP8
    [ $format = fp8 ] || scheme=W4A16
    expect 0 '' quantize -o "$T/cached" --format $format --scheme $scheme --kv-cache "$codes" --threads 1
    expect 0 '' quantize -o "$T/again" --format $format --scheme $scheme --kv-cache "$codes" --threads 3
    grep -q "\"kv_cache\": *\"$codes\"" "$T/cached/manifest.json" || fail "manifest of a cache in $codes"
    for run in bf16 fp8 int8; do # scales for one serve the other: the same range
        expect 0 '' judge "$T/cached" --kv-cache $run --max-kl 0.2 --json
        grep '"kl_max"' "$T/stdout" >"$T/kl.$run"
    done
    cmp -s "$T/kl.bf16" "$T/kl.int8" && fail 'a cache in int8 costs nothing'
    cmp -s "$T/kl.fp8" "$T/kl.int8" && fail 'a cache in int8 is one in fp8'
    cmp "$T/cached/model.safetensors" "$T/again/model.safetensors" || fail 'threads change the scales'
    expect 0 '' judge "$T/cached"
    rm "$T/cached/manifest.json"
    sed -i 's/layers\.1\.self_attn\.v_scale/layers.1.self_attn.v_scal_/' "$T/cached/model.safetensors"
    expect 1 'self_attn.v_scale is missing' judge "$T/cached"
done
expect 4 'use --format compressed-tensors or fp8' quantize -o "$T/kv" --format gptq --kv-cache fp8
absent "$T/kv"
expect 4 'int8; use --format compressed-tensors' quantize -o "$T/kv" --format fp8 --scheme FP8 --kv-cache int8
absent "$T/kv"
expect 4 'no k_scale and v_scale*--kv-cache fp8' judge "$T/out" --kv-cache int8
expect 2 'give calibration text' "$SWAGE" quantize "$TOY" -o "$T/kv" --quiet --method rtn \
    --format compressed-tensors --kv-cache fp8
absent "$T/kv"

# gates decide the exit code
expect 1 '--max-kl failed' judge "$T/out" --max-kl 0.0000001
expect 1 '--min-top1 failed' judge "$T/out" --min-top1 1
expect 1 '--max-ppl-ratio failed' judge "$T/out" --max-ppl-ratio 0.5
expect 0 '' judge "$T/out" --max-kl 1000 --min-top1 0 --max-ppl-ratio 1000
expect 2 'give the original and a text' "$SWAGE" verify "$T/out" --max-kl 1 --quiet
finish
