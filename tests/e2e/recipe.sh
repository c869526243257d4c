#!/bin/bash
# Recipes and mixed precision, from the file to the checkpoint that verify reads.
. "$(dirname "$0")/lib.bash"

OUT=$T/out
R=$T/recipe.json
quantize() { "$SWAGE" quantize --quiet "$TOY" -o "$OUT" --recipe "$R" "$@"; }
refuse() { # CODE TEXT RECIPE OPTIONS...
    local code=$1 text=$2
    printf '%s' "$3" >"$R"
    shift 3
    expect "$code" "$text" quantize "$@"
    absent "$OUT"
}

# --- every dialect holds several schemes, and the second decoder agrees
for format in swage gptq gptq_v2 compressed-tensors; do
    rm -rf "$OUT"
    cat >"$R" <<EOF
{"method": "rtn", "group_size": 32, "format": "$format",
 "overrides": [{"match": "down_proj", "bits": 8}, {"match": "layers.0.self_attn.[qkv]_", "group_size": 64},
               {"match": "layers.1.self_attn.o_proj", "ignore": true}]}
EOF
    expect 0 '' quantize
    expect 0 '' "$SWAGE" verify --quiet "$OUT" --against "$TOY"
    grep -q 'mixed' "$T/stdout" || fail "verify does not say that $format is mixed"
    [ "$(grep -c '"bits": *8' "$OUT/manifest.json")" -eq 2 ] || fail "$format: not two at 8 bits"
done

# --- the command line goes first
rm -rf "$OUT"
printf '{"method": "rtn", "bits": 8, "group_size": 64}' >"$R"
expect 0 '' quantize --bits 4
grep -q '"bits": *4' "$OUT/manifest.json" || fail "--bits 4 did not win over the recipe"
grep -q '"group_size": *64' "$OUT/manifest.json" || fail "the recipe's group size was lost"
# --- the same as flags, byte by byte
expect 0 '' "$SWAGE" quantize --quiet "$TOY" -o "$T/flags" --method rtn --bits 4 --group-size 64
cmp -s "$OUT/model.safetensors" "$T/flags/model.safetensors" || fail "a recipe differs from its flags"
rm -rf "$OUT"

# --- what is wrong is said before any work
refuse 3 "$R: unknown key \"mehtod\"; did you mean \"method\"?" '{"mehtod": "rtn"}'
refuse 3 "$R: overrides*0*: unknown key \"group\"" '{"overrides": [{"match": "a", "group": 4}]}'
refuse 3 'duplicate' '{"bits": 4, "bits": 8}'
refuse 3 "$R" '{"bits": 4'
refuse 5 "$T/none.json" '{}' --recipe "$T/none.json"
refuse 2 'matches no linear' '{"method": "rtn", "overrides": [{"match": "experts", "bits": 8}]}'
refuse 2 'layers.0.self_attn.q_proj 4 bits*layers.0.self_attn.k_proj 8 bits' \
    '{"method": "rtn", "overrides": [{"match": "k_proj", "bits": 8}]}'
refuse 2 'mlp.up_proj is left alone but not*mlp.gate_proj' \
    '{"method": "rtn", "overrides": [{"match": "up_proj", "ignore": true}]}'
refuse 4 'groups of 96' '{"method": "rtn", "overrides": [{"match": "o_proj", "group_size": 96}]}'

# --- outlier channels: stored, run, judged; elsewhere refused
rm -rf "$OUT"
printf '{"method": "rtn", "bits": 2, "group_size": 32, "outliers": 0.05,
    "overrides": [{"match": "down_proj", "bits": 8, "outliers": 0}]}' >"$R"
expect 0 '' quantize
expect 0 '' "$SWAGE" verify --quiet "$OUT" --against "$TOY"
[ "$(grep -c '"outliers": *[1-9]' "$OUT/manifest.json")" -eq 12 ] || fail 'not 12 with outliers'
rm -rf "$OUT"
refuse 4 'q_proj: gptq has no place for outlier channels; use --format swage' \
    '{"method": "rtn", "format": "gptq", "outliers": 0.05}'
refuse 3 'outliers 0.5: a share from 0 to 0.25' \
    '{"overrides": [{"match": "o_proj", "outliers": 0.5}]}'
refuse 2 'q_proj 4 bits*k_proj 4 bits, group 32, symmetric, * outliers' \
    '{"method": "rtn", "group_size": 32, "overrides": [{"match": "k_proj", "outliers": 0.1}]}'

# --- a size as target: kept, reached by several schemes, the same for any number of threads
toy_tokens 4096 >"$T/ids.u16"
target() { "$SWAGE" quantize "$TOY" --calib "$T/ids.u16" --samples 8 --seq-len 32 --quiet "$@"; }
for bits in 4.5 3.7; do
    rm -rf "$OUT" "$T/again"
    expect 0 '' target -o "$OUT" --format compressed-tensors --target-bits $bits --threads 1
    have=$(sed -n 's/.*fallback, \([0-9.]*\) bits per weight.*/\1/p' "$T/stdout")
    awk -v have="$have" -v want=$bits 'BEGIN { exit !(have <= want && have > want - 0.4) }' ||
        fail "--target-bits $bits came out at '$have'"
    grep -q 'mixed' "$T/stdout" || fail "--target-bits $bits: one scheme for all"
    expect 0 '' target -o "$T/again" --format compressed-tensors --target-bits $bits --threads 3
    diff -r "$OUT" "$T/again" >/dev/null || fail "--target-bits $bits differs with the threads"
    expect 0 '' "$SWAGE" verify --quiet "$OUT" --against "$TOY"
done
rm -rf "$OUT"

# --- outliers by what they are worth: alone, within a size, or a share that all of a size keep
for how in '--outliers auto' '--target-bits 4.8 --outliers auto' '--target-bits 5 --outliers 0.03'; do
    rm -rf "$OUT" "$T/again"
    # shellcheck disable=SC2086
    expect 0 '' target -o "$OUT" $how --threads 1
    # shellcheck disable=SC2086
    expect 0 '' target -o "$T/again" $how --threads 3
    diff -r "$OUT" "$T/again" >/dev/null || fail "$how differs with the threads"
    expect 0 '' "$SWAGE" verify --quiet "$OUT" --against "$TOY"
done
[ "$(grep -c '"outliers": *[1-9]' "$OUT/manifest.json")" -eq 14 ] || fail 'not all with outliers'
rm -rf "$OUT"
expect 2 '--outliers auto needs calibration text' \
    "$SWAGE" quantize --quiet "$TOY" -o "$OUT" --outliers auto --method rtn
expect 4 'proj: gptq has no place for outlier channels*swage' \
    target -o "$OUT" --format gptq --outliers auto
expect 2 '--target-bits 2: compressed-tensors needs at least 2.*bits per weight' \
    target -o "$OUT" --format compressed-tensors --target-bits 2
expect 2 '--target-bits 2: swage needs at least 2' target -o "$OUT" --target-bits 2
expect 2 'leave --bits out' target -o "$OUT" --target-bits 4.5 --bits 4
expect 2 '--target-bits needs calibration text' \
    "$SWAGE" quantize --quiet "$TOY" -o "$OUT" --target-bits 5 --method rtn
absent "$OUT"
# a rule for exponents, from the line and from a recipe; the manifest says what it made of each weight
set -- "$SWAGE" quantize "$TOY" --quiet --scheme MXFP4A16 --method rtn --format compressed-tensors
expect 0 '' "$@" -o "$OUT" --mx-scale ocp
grep -q '"mx_scale": *"ocp"' "$OUT/manifest.json" || fail 'no rule among the settings'
[ "$(grep -c '"above_ocp": *0' "$OUT/manifest.json")" -eq 14 ] || fail 'scales above those of the rule'
[ "$(grep -c '"below_ocp": *0' "$OUT/manifest.json")" -eq 14 ] || fail 'scales below those of the rule'
printf '{"mx-scale": "ocp"}' >"$T/rule.json"
expect 0 '' "$@" -o "$OUT.2" --recipe "$T/rule.json"
cmp "$OUT/model.safetensors" "$OUT.2/model.safetensors" || fail 'a rule in a recipe does otherwise'
rm -r "$OUT" "$OUT.2"
expect 0 '' "$@" -o "$OUT"
grep -q '"above_ocp": *[1-9]' "$OUT/manifest.json" || fail 'the search never leaves the rule of OCP'
rm -r "$OUT"
expect 2 '--mx-scale is for scales that are powers of two' \
    "$SWAGE" quantize "$TOY" --quiet -o "$OUT" --method rtn --mx-scale ocp
toy_tokens 256 >"$T/toy.u16"
expect 0 '' "$SWAGE" quantize "$TOY" --quiet -o "$OUT" --scheme FP8 --method rtn \
    --format compressed-tensors --calib "$T/toy.u16" --samples 2 --seq-len 64
[ "$(grep -c '"input_scale": *[0-9]' "$OUT/manifest.json")" -eq 14 ] || fail 'not all input scales'
rm -r "$OUT"
finish
