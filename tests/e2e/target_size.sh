#!/bin/bash
# --target-size: the files of the output together are never larger, and plan counts them before.
. "$(dirname "$0")/lib.bash"

OUT=$T/out
written() { cat "$OUT"/* | wc -c; }
number() { tr -d ' \t\n' <"$T/stdout" | grep -o "\"$1\":[0-9]*" | head -n 1 | grep -o '[0-9]*$'; }
CALIB=(--calib "$TOY/reference.safetensors" --samples 2 --seq-len 32)

# --- what plan counts is what is written, byte for byte; only manifest and card it bounds
MOE=$PWD/tests/golden/arch/qwen3_moe
for model in "$TOY" "$MOE" "$TINY"; do
    for options in '--format swage' '--format gptq' '--format awq' '--format compressed-tensors' \
        '--format swage --scheme W8A16 --shard-size 100K' \
        '--format compressed-tensors --scheme NVFP4A16' '--format compressed-tensors --scheme FP8_DYNAMIC' \
        '--format swage --ignore down_proj --scheme W4A16_ASYM'; do
        # shellcheck disable=SC2206
        words=($options --method rtn)
        case $options in *NVFP4*|*FP8*) ;; *) words+=(--group-size 32) ;; esac
        rm -rf "$OUT"
        expect 0 '' "$SWAGE" plan "$model" "${words[@]}" --json
        files=$(number files_bytes) papers=$(number papers_bytes)
        expect 0 '' "$SWAGE" quantize --quiet "$model" -o "$OUT" "${words[@]}" --json
        [ "$(number file_bytes)" = "$(written)" ] || fail "file_bytes $(number file_bytes), $(written)"
        have=$(($(written) - $(cat "$OUT/manifest.json" "$OUT/README.md" | wc -c)))
        [ "$files" = "$have" ] || fail "$model $options: planned $files bytes, written $have"
        [ $(($(written) - have)) -le "$papers" ] || fail "$options: manifest and card over $papers"
    done
done

# --- every size that can be reached is kept, and mostly used; one below is refused with the least
for format in swage compressed-tensors gptq_v2; do
    Q=("$SWAGE" quantize --quiet "$TOY" -o "$OUT" "${CALIB[@]}" --format $format)
    [ $format = swage ] || Q+=(--ignore 'layers\.1') # what they have of their own is how they pack
    Q+=(--target-size)
    rm -rf "$OUT"
    expect 2 'the smallest output that*bytes, with all of its files; raise it' "${Q[@]}" 1K
    absent "$OUT"
    least=$(grep -o 'hold is [0-9]*' "$T/stderr" | grep -o '[0-9]*')
    expect 2 "--target-size $((least - 1)): the smallest" "${Q[@]}" $((least - 1))
    more=(5000 50000)
    [ $format != swage ] || more=(1 5000 20000 100000)
    for size in $least "${more[@]/#/$((least))+}"; do
        size=$((size))
        rm -rf "$OUT"
        expect 0 '' "${Q[@]}" "$size"
        [ "$(written)" -le "$size" ] || fail "$format: $(written) bytes of at most $size"
        grep -q "\"target_size\": $size" "$OUT/manifest.json" || fail 'not in the manifest'
        expect 0 '' "$SWAGE" verify --quiet "$OUT" --against "$TOY"
    done
done
small=$(written)
rm -rf "$OUT"
expect 0 '' "${Q[@]}" $((least + 100000))
[ "$(written)" -gt "$small" ] || fail 'a larger size is not used'

# --- a mixture of experts, a transform, every expert's row
rm -rf "$OUT"
Q=("$SWAGE" quantize --quiet "$MOE" -o "$OUT" --calib "$MOE/reference.safetensors" --samples 2
   --seq-len 32 --group-size 32 --allow-fallback --target-size)
"${Q[@]}" 1K 2>"$T/stderr"
least=$(grep -o 'hold is [0-9]*' "$T/stderr" | grep -o '[0-9]*')
for size in "$least" $((least + 30000)); do
    rm -rf "$OUT"
    expect 0 '' "${Q[@]}" "$size"
    [ "$(written)" -le "$size" ] || fail "experts: $(written) bytes of at most $size"
done

# --- plan refuses the same and names the least; what makes no sense is said
expect 2 'the smallest output that' "$SWAGE" plan "$TOY" --target-size 1K
expect 0 '' "$SWAGE" plan "$TOY" --target-size 4.5M --json
[ "$(number least_bytes)" -gt 0 ] || fail 'plan does not say what the least is'
expect 0 '' "$SWAGE" plan "$TOY" --target-size 4.5M
grep -q '^target  .*4718592 bytes' "$T/stdout" || fail 'plan does not show the target'
R=("$SWAGE" quantize --quiet "$TOY" -o "$T/x" "${CALIB[@]}")
expect 2 'give --target-bits or --target-size' "${R[@]}" --target-size 1M --target-bits 4
expect 2 'target-size chooses the widths; leave --bits out' "${R[@]}" --target-size 1M --bits 4
expect 2 'scheme FP8 is another kind' "${R[@]}" --target-size 1M --scheme FP8
absent "$T/x"
finish
