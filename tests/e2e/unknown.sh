#!/bin/bash
# A model_type that nobody knows: another family's row may serve it (--arch-like), or its weights are
# rounded alone, told by names and shapes. Nothing is left out in silence.
. "$(dirname "$0")/lib.bash"
use_recipes
KNOWN='"model_type": *"[a-z0-9_]*"'

# unknown NAME [SOURCE]: a copy that calls itself frobnicate
unknown() {
    model "$1" "${2:-$TINY}"
    sed -i "s/$KNOWN/\"model_type\": \"frobnicate\"/g" "$T/$1/config.json"
}
# quantized OUT MODEL OPTIONS...: by rounding, in the format that others read
quantized() {
    local out=$1 from=$2
    shift 2
    rm -rf "${T:?}/$out"
    expect 0 '' "$SWAGE" quantize "$T/$from" -o "$T/$out" --method rtn -q \
        --format compressed-tensors "$@"
    cp "$T/stdout" "$T/said"
}
unknown frob

# --- without a word it is refused, with both remedies
for command in "quantize -o $T/no --calib $T/x" 'calibrate -o x.stats --calib x' 'generate' 'plan'; do
    expect 4 '"frobnicate" is not supported;*`swage list architectures`*--arch-like FAMILY*--method rtn' \
        "$SWAGE" ${command%% *} "$T/frob" ${command#"${command%% *}"} -q
done
absent "$T/no"
sed 's/frobnicate/qwen3_mo/' "$T/frob/config.json" >"$T/near.json"
unknown near
mv "$T/near.json" "$T/near/config.json"
expect 4 'the nearest are qwen3_moe and qwen2_moe;' "$SWAGE" generate "$T/near" -q

# --- weights alone: the same tensors as of the family that it is, and its own config.json; only a
# family says in which order a block's linears are made, and so lie in the file
made_by_one -s "${BUILD:-build/release}/tests/tools/tensor_digests" >/dev/null || exit 1
DIGESTS=$PWD/${BUILD:-build/release}/tests/tools/tensor_digests
quantized ref frob --arch-like llama
quantized out frob
"$DIGESTS" "$T/ref" >"$T/ref.digests" && "$DIGESTS" "$T/out" >"$T/out.digests" || fail 'no digests'
[ -s "$T/ref.digests" ] && cmp -s "$T/ref.digests" "$T/out.digests" || fail 'not what a llama becomes'
grep -q 'left        0 linears by rule, 0 by pattern, 0 unknown' "$T/said" || fail 'no counts'
grep -q '"model_type": "frobnicate"' "$T/out/config.json" || fail 'another model_type'
grep -q '"weights_alone": true' "$T/out/manifest.json" || fail 'the manifest says nothing'
grep -q 'nothing was calibrated, and no logits were checked' "$T/out/README.md" || fail 'nor the card'
grep -q '"arch_like": "llama"' "$T/ref/manifest.json" || fail 'no arch_like in the manifest'
grep -q 'frobnicate, read as llama' "$T/ref/README.md" || grep -q 'frobnicate' "$T/ref/README.md" ||
    fail 'no arch_like in the card'
grep -q -- '--arch-like llama' "$T/ref/README.md" || fail 'the card has another command'
expect 0 '*frobnicate is not known: weights alone*no logits are checked' \
    "$SWAGE" plan "$T/frob" --method rtn
grep -q 'nan' "$T/stdout" && fail 'a plan with nan'
grep -q '0 linears by rule' "$T/stdout" || fail 'a plan without counts'
expect 0 '' "$SWAGE" inspect "$T/out" -q
grep -q 'frobnicate, which is not known: weights alone' "$T/stdout" || fail 'inspect does not say it'

# --- judged: files and weights, with and without the original; faults are found
expect 0 '' "$SWAGE" verify "$T/out" -q
grep -q 'no logits were checked' "$T/stdout" || fail 'verify does not say what it leaves'
expect 0 '' "$SWAGE" verify "$T/out" --against "$T/frob" -q
grep -q '42 quantized, 14 bit-identical' "$T/stdout" || fail 'not all were compared'
expect 4 'no logits can be computed' "$SWAGE" verify "$T/out" --against "$T/frob" -q \
    --text calib_data/eval.u16
expect 0 '' "$SWAGE" verify "$T/ref" --against "$T/frob" -q --text calib_data/eval.u16 \
    --window 256 --max-windows 2 --max-kl 0.3 --arch-like llama
cp -r "$T/out" "$T/bad"
size=$(stat -c %s "$T/bad/model.safetensors")
printf '\x77\x13\x99\x42\x77\x13\x99\x42' |
    dd of="$T/bad/model.safetensors" bs=1 seek=$((size - 200000)) conv=notrunc 2>/dev/null
"$SWAGE" verify "$T/bad" --against "$T/frob" -q >"$T/stdout" 2>"$T/stderr"
[ $? -eq 1 ] || fail 'damaged codes pass'
unknown short
sed -i 's/"num_hidden_layers": 6/"num_hidden_layers": 5/' "$T/short/config.json"
"$SWAGE" verify "$T/out" --against "$T/short" -q >"$T/stdout" 2>"$T/stderr"
[ $? -eq 1 ] || fail 'more linears than the original has pass'
grep -q 'not judged.*layers.5' "$T/stdout" || fail 'nobody says what was not judged'
unknown other "$TOY"
"$SWAGE" verify "$T/out" --against "$T/other" -q >"$T/stdout" 2>"$T/stderr"
[ $? -eq 1 ] || fail 'another model passes for the original'

# --- between the formats and back, bit by bit; what cannot be said is refused
for to in swage gptq gptq_v2 awq marlin machete modelopt; do
    rm -rf "$T/there" "$T/back"
    expect 0 '' "$SWAGE" convert "$T/out" --to $to -o "$T/there" -q
    expect 0 '' "$SWAGE" verify "$T/there" --against "$T/frob" -q
    expect 0 '' "$SWAGE" convert "$T/there" --to compressed-tensors -o "$T/back" -q
    expect 0 '' "$SWAGE" verify "$T/back" --against "$T/frob" -q
done
expect 0 '' "$SWAGE" convert "$T/out" --to bf16 -o "$T/dense" -q
expect 0 '' "$SWAGE" verify "$T/dense" --against "$T/out" -q
expect 4 'a GGUF names an architecture' "$SWAGE" convert "$T/out" --to gguf --type Q4_0 -q \
    --allow-requantize -o "$T/out.gguf"
for scheme in FP8_DYNAMIC FP8_BLOCK NVFP4A16 MXFP4A16 W8A8; do
    quantized s frob --scheme $scheme
    expect 0 '' "$SWAGE" verify "$T/s" --against "$T/frob" -q
done
expect 2 'scheme FP8 needs calibration text' "$SWAGE" quantize "$T/frob" -o "$T/no" -q --method rtn \
    --scheme FP8
expect 2 'nobody says which tensor is the head' "$SWAGE" quantize "$T/frob" -o "$T/no" -q \
    --method rtn --lm-head
expect 4 'its names are those of a GGUF' "$SWAGE" quantize "$T/frob" -o "$T/no" -q --method rtn \
    --imatrix "$T/frob/config.json"

# --- --arch-like: tensors and shapes that do not fit are named
expect 2 'does not know the family "lama"; the nearest is llama' "$SWAGE" inspect "$T/frob" -q \
    --arch-like lama
expect 4 'not like opt: model.layers.0.self_attn.out_proj.weight: missing*Give another family' \
    "$SWAGE" quantize "$T/frob" -o "$T/no" -q --method rtn --arch-like opt
expect 4 'not like qwen3: model.layers.0.self_attn.q_norm.weight: missing' "$SWAGE" quantize \
    "$T/frob" -o "$T/no" -q --method rtn --arch-like qwen3
unknown wide
sed -i 's/"intermediate_size": 768/"intermediate_size": 760/' "$T/wide/config.json"
expect 4 'not like llama: model.layers.0.mlp.gate_proj.weight: *config.json asks for \[760, 256\]' \
    "$SWAGE" generate "$T/wide" -q --arch-like llama
unknown more tests/golden/arch/qwen3
expect 4 'not like llama: *k_norm.weight is not read by such a model' "$SWAGE" plan "$T/more" -q \
    --method rtn --group-size 32 --arch-like llama
unknown biased tests/golden/arch/qwen2
expect 4 'not like llama: *k_proj.bias is not read by such a model' "$SWAGE" plan "$T/biased" -q \
    --method rtn --group-size 32 --arch-like llama
expect 0 '' "$SWAGE" plan "$T/biased" -q --method rtn --group-size 32 --arch-like qwen2
expect 0 '--arch-like qwen2 was not needed' "$SWAGE" inspect "$TINY" --arch-like qwen2

# --- experts: their own tensors, all in one, or nobody can tell
unknown moe tests/golden/arch/qwen3_moe
quantized out moe --group-size 32
grep -q 'left        2 linears by rule' "$T/said" || fail 'routers are not counted'
expect 0 '' "$SWAGE" verify "$T/out" --against "$T/moe" -q
"$EXPAND" tests/golden/recipes/qwen3_vl_moe "$T/fused" >/dev/null || fail 'no toy'
sed -i "s/$KNOWN/\"model_type\": \"frobnicate\"/g" "$T/fused/config.json"
quantized out fused --group-size 32
grep -q '32 quantized' "$T/said" || fail 'experts in one tensor were left'
grep -aq 'experts.3.up_proj.weight_packed' "$T/out/model.safetensors" || fail 'no expert apart'
expect 0 '' "$SWAGE" verify "$T/out" --against "$T/fused" -q
sed -i 's/"num_local_experts":/"number_of_experts":/' "$T/fused/config.json"
expect 4 "experts.down_proj: config.json does not say how many experts*--ignore*--arch-like" \
    "$SWAGE" quantize "$T/fused" -o "$T/no" -q --method rtn --group-size 32
quantized out fused --group-size 32 --ignore experts
grep -q 'left        2 linears by rule, 4 by pattern, 0 unknown' "$T/said" || fail 'ignored experts'
unknown turns tests/golden/arch/gpt_oss
expect 4 'it has a bias, as where gate and up channels stand in turns' "$SWAGE" quantize "$T/turns" \
    -o "$T/no" -q --method rtn --group-size 32
unknown conv1d tests/golden/arch/gpt2
expect 4 'c_attn.weight: its bias has a value for each column, so it is stored turned' \
    "$SWAGE" quantize "$T/conv1d" -o "$T/no" -q --method rtn --group-size 32
absent "$T/no"
finish
