#!/bin/bash
# Experts on little text: what they are calibrated on decides, and the blend is no worse than either
# part. 1024 tokens: some experts get a few dozen.
. "$(dirname "$0")/lib.bash"
MOE=$PWD/tests/golden/models/tiny-moe

kl_of() {
    "$SWAGE" verify "$T/$1" --against "$MOE" --text "$PWD/calib_data/eval.txt" --window 512 \
        --max-windows 4 --no-gap --json --quiet --original-states "$T/original" |
        grep -A1 '"kl_mean"' | tail -n 1 | grep -o '[0-9][0-9.e-]*'
}
for experts in routed all shrink; do
    expect 0 '' "$SWAGE" quantize "$MOE" -o "$T/$experts" --experts $experts --allow-fallback --quiet \
        --calib "$PWD/calib_data/calib.txt" --samples 2 --seq-len 512
    cp "$T/stdout" "$T/$experts.said"
    eval "kl_$experts=$(kl_of $experts)"
done
# shellcheck disable=SC2154
awk -v r="$kl_routed" -v a="$kl_all" -v s="$kl_shrink" \
    'BEGIN { exit !(s > 0 && s < 0.9 * r && s < 1.03 * a) }' ||
    fail "KL routed $kl_routed, all $kl_all, shrink $kl_shrink"
grep -q '^experts  *32, .* calibration tokens each' "$T/shrink.said" || fail 'tokens are not reported'
grep -q '0 by a fallback' "$T/shrink.said" || fail 'an expert fell back'
# 16 tokens cannot reach all: verify says how many it could not judge
head -c 32 "$PWD/calib_data/eval.u16" >"$T/short.u16"
expect 0 '' "$SWAGE" verify "$T/shrink" --against "$MOE" --text "$T/short.u16" --window 16 --no-gap --quiet
grep -q '^experts  *32 got 0 to [0-9]* of 16 tokens, [1-9][0-9]* got none' "$T/stdout" ||
    fail "verify on tokens of experts: $(grep ^experts "$T/stdout")"
grep -q '"routed_tokens"' "$T/shrink/manifest.json" || fail 'no tokens in the rows of the manifest'

# --- a layer whose experts are all left: engines ask for the module of them, not for an expert
use_recipes
"$EXPAND" "$RECIPES/qwen2_moe" "$T/moe" || fail 'no toy'
asks_for() { # FORMAT TEXT
    expect 0 '' "$SWAGE" quantize -q "$T/moe" -o "$T/$1" --method rtn --group-size 32 --format "$1" \
        --ignore 'layers\.1\.mlp\.experts'
    grep -qF "$2" "$T/$1/config.json" || fail "$1: $(cat "$T/$1/config.json")"
    grep -q 'experts\\*\.[0-9]' "$T/$1/config.json" && fail "$1 names single experts"
    expect 0 '' "$SWAGE" verify -q "$T/$1" --against "$T/moe"
}
asks_for awq '"model.layers.1.mlp.experts"'
asks_for gptq '"-:^model\\.layers\\.1\\.mlp\\.experts.*"'
asks_for compressed-tensors '"re:^model\\.layers\\.1\\.mlp\\.experts.*"'
# and still once when it goes from format to format
expect 0 '' "$SWAGE" convert -q "$T/awq" --to swage -o "$T/tiles"
expect 0 '' "$SWAGE" convert -q "$T/tiles" --to awq -o "$T/again"
[ "$(grep -o 'layers.1.mlp.experts"' "$T/again/config.json" | wc -l)" -eq 1 ] || fail 'named twice'
finish
