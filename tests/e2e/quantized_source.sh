#!/bin/bash
# A source that is quantized already: what is not quantized again becomes floats, and nothing stays
# in the source's codes beside another format.
. "$(dirname "$0")/lib.bash"
quantize() { "$SWAGE" quantize --quiet --method rtn --format compressed-tensors "$@"; }
dtype_of() { # FILE TENSOR
    head -c 200000 "$1" | tr '{' '\n' | grep -aA1 -F "\"$2\":" | grep -ao '"dtype":"[A-Z0-9_]*"' | head -n 1
}

expect 0 '' quantize "$TOY" -o "$T/fp8" --scheme FP8_DYNAMIC
Q=model.layers.0.self_attn.q_proj

# --- --ignore on a source in fp8: floats, listed for engines, and judged
expect 0 '' quantize "$T/fp8" -o "$T/left" --scheme W4A16 --group-size 32 --ignore 'layers.0.self_attn'
[ "$(dtype_of "$T/left/model.safetensors" $Q.weight)" = '"dtype":"BF16"' ] || fail 'no floats'
[ -z "$(dtype_of "$T/left/model.safetensors" $Q.weight_scale)" ] || fail 'its scale is left'
grep -q "\"$Q\"" "$T/left/config.json" || fail 'engines are not told'
grep -q '"left_by_pattern": *4' "$T/left/manifest.json" || fail 'not counted'
expect 0 '' "$SWAGE" verify --quiet "$T/left" --against "$T/fp8"
"$SWAGE" quantize --method rtn "$T/fp8" -o "$T/said" --group-size 32 --ignore layers.0 \
    --format compressed-tensors >"$T/out" 2>&1
grep -q '7 linears that the source has in codes stay floats' "$T/out" || fail 'it is not said'

# --- what plan foresees of it is what comes: of codes, of what is left, and of tensors in all
expect 0 '' "$SWAGE" plan --quiet "$T/fp8" --group-size 32 --format compressed-tensors --ignore layers.0
cp "$T/stdout" "$T/plan"
grep -q '^copied      14 tensors, 460 kB' "$T/plan" || fail "$(grep ^copied "$T/plan")"
[ "$(grep ^tensors "$T/plan")" = "$(grep ^tensors "$T/out")" ] || fail "$(grep -h ^tensors "$T/plan" "$T/out")"

# --- a further layer in fp8, as DeepSeek and GLM publish the one that predicts further tokens
cp -r "$T/fp8" "$T/mtp"
sed -i 's/"num_hidden_layers": *2/"num_hidden_layers": 1/' "$T/mtp/config.json"
expect 0 '' quantize "$T/mtp" -o "$T/mtp4" --scheme W4A16 --group-size 32
grep -q 're:^model' "$T/mtp4/config.json" || fail 'the further layer is not ignored'
[ "$(dtype_of "$T/mtp4/model.safetensors" "${Q/0/1}.weight")" = '"dtype":"BF16"' ] || fail 'in codes'
expect 0 '' "$SWAGE" verify --quiet "$T/mtp4" --against "$T/mtp"
expect 0 '' "$SWAGE" convert --quiet "$T/mtp" --to bf16 -o "$T/mtp16"
grep -aq F8_E4M3 "$T/mtp16/model.safetensors" && fail 'decoded in part'
# into other codes each linear is copied or the whole is refused, with what to do
expect 2 'quantized already*decode the model first: swage convert' \
    "$SWAGE" convert --quiet "$T/mtp" --to swage -o "$T/no"
absent "$T/no"

# --- experts of gpt-oss in one tensor: before any work, not when the output is read back
expect 0 '' "$SWAGE" quantize --quiet tests/golden/arch/gpt_oss -o "$T/oss" --method rtn --recipe mxfp4-experts
expect 2 'experts.down_proj" is quantized already*decode the model first: swage convert' \
    quantize "$T/oss" -o "$T/no" --scheme FP8_DYNAMIC --ignore experts
absent "$T/no"

# --- codes of codes: most weights lie on the new grid too, which is no sign of plain rounding
few=(--calib calib_data/calib.u16 --samples 4 --seq-len 128 --format compressed-tensors --ignore 'layers\.[2-5]')
expect 0 '' "$SWAGE" quantize --quiet "$TINY" -o "$T/awq" --method awq "${few[@]}"
expect 0 '' "$SWAGE" quantize --quiet "$T/awq" -o "$T/again" --method gptq "${few[@]}"
expect 0 '' "$SWAGE" verify --quiet "$T/again" --against "$T/awq"

# --- scales of a cache that the source has: made anew, kept with what they are for, or left behind
scale_of() { # DIR: the bytes of one
    tail -c +$(($(offset_of "$1/model.safetensors" model.layers.0.self_attn.k_scale) + 1)) "$1/model.safetensors" |
        head -c 4 | od -An -tx4
}
toy_tokens 4096 >"$T/calib.u16"
cached() { quantize "$@" --scheme FP8 --calib "$T/calib.u16" --seq-len 128 --samples 4; }
expect 0 '' cached "$TOY" -o "$T/int8" --kv-cache int8
expect 0 '' cached "$TOY" -o "$T/fp8kv" --kv-cache fp8
expect 0 '' cached "$T/int8" -o "$T/anew" --kv-cache fp8
grep -q '"kv_cache": *"fp8"' "$T/anew/manifest.json" || fail 'no cache in the manifest'
grep -A9 kv_cache_scheme "$T/anew/config.json" | grep -q '"type": *"float"' || fail 'the config names others'
expect 0 '' "$SWAGE" verify --quiet "$T/anew" --against "$T/int8"
[ "$(scale_of "$T/anew")" = "$(scale_of "$T/fp8kv")" ] || fail 'scales are not those of this run'
expect 0 '' cached "$T/int8" -o "$T/kept"
[ "$(scale_of "$T/kept")" = "$(scale_of "$T/int8")" ] || fail 'scales of the source are not kept'
grep -A9 kv_cache_scheme "$T/kept/config.json" | grep -q '"type": *"int"' || fail 'what they are for is lost'
expect 0 '' "$SWAGE" verify --quiet "$T/kept" --against "$T/int8"
at=$(offset_of "$T/anew/model.safetensors" model.layers.1.self_attn.v_scale)
poke "$T/anew/model.safetensors" $((at + 3)) '\x40' # of a range that no text gave: several units
rm "$T/anew/manifest.json"
expect 1 'layers.1.self_attn.v_scale' "$SWAGE" verify --quiet "$T/anew" --against "$T/int8"
for to in bf16 fp8; do # whose readers take every scale for one of E4M3
    "$SWAGE" convert "$T/int8" -o "$T/no-$to" --to $to >"$T/out" 2>&1 || fail "convert --to $to: $(cat "$T/out")"
    grep -q '4 scales of a KV cache in int8 stay behind' "$T/out" || fail "it is not said: $(cat "$T/out")"
    grep -aq k_scale "$T/no-$to/model.safetensors" && fail "scales for int8 in $to"
    expect 0 '' "$SWAGE" verify --quiet "$T/no-$to" --against "$T/int8"
    expect 0 '' "$SWAGE" convert --quiet "$T/fp8kv" -o "$T/with-$to" --to $to
    grep -aq k_scale "$T/with-$to/model.safetensors" || fail "scales for fp8 are not in $to"
done
finish
