#!/bin/bash
# The recipes that come with the program: each is listed, quantizes a toy of one of its families, and
# says of every linear what loaders ask for.
. "$(dirname "$0")/lib.bash"
use_recipes
toy_tokens 1536 >"$T/calib.u16"

# try RECIPE TOY MAX_KL OPTIONS...: quantized as the recipe says, then judged
try() {
    local recipe=$1 toy=$2 max_kl=$3 model=$T/$2 text=$RECIPES/$2/reference.safetensors
    shift 3
    [ -d "$PWD/tests/golden/arch/$toy" ] && model=$PWD/tests/golden/arch/$toy text=$T/calib.u16
    [ -d "$model" ] || "$EXPAND" "$RECIPES/$toy" "$model" || fail "no $toy"
    rm -rf "$T/out"
    expect 0 '' "$SWAGE" quantize "$model" -o "$T/out" --recipe "$recipe" --quiet \
        --calib "$T/calib.u16" --samples 24 --seq-len 48 "$@"
    expect 0 '' "$SWAGE" verify "$T/out" --against "$model" --quiet --text "$text" --window 48 \
        --max-windows 8 --max-kl "$max_kl"
    tr -d ' \n' <"$T/out/config.json" >"$T/config"
}
has() { grep -qF -- "$1" "$T/config" || fail "the config does not say $1"; }
hasnt() { grep -qF -- "$1" "$T/config" && fail "the config says $1"; }

# what is listed is what can be asked for
expect 0 '' "$SWAGE" list recipes
tail -n +2 "$T/stdout" | cut -d' ' -f1 | sort >"$T/listed"
printf '%s\n' fp8-block fp8-dynamic mxfp4-experts nvfp4-experts-fp8 w4a16 w4a16-experts |
    cmp -s - "$T/listed" || fail "listed are $(tr '\n' ' ' <"$T/listed")"
expect 0 '' "$SWAGE" plan "$TOY" --recipe W4A16 --group-size 32
expect 2 "--recipe does not know 'nvfp4-expert-fp8'; did you mean nvfp4-experts-fp8?" \
    "$SWAGE" plan "$TOY" --recipe nvfp4-expert-fp8

try w4a16 llama 0.3 --group-size 32
has '"targets":["Linear"],"format":"pack-quantized"'
# groups of 128 do not divide some inputs of the toys
try fp8-block qwen3_5 0.2 --ignore 'mlp.down_proj'
has '"quant_method":"fp8"'
has '"weight_block_size":[128,128]'
has '"model.language_model.layers.0.linear_attn.in_proj_a"'
try fp8-dynamic lfm2 0.1
has '"strategy":"channel"'
try mxfp4-experts gpt_oss 0.3
has '"quant_method":"mxfp4"'
has '"model.layers.*.self_attn"'

# routed experts alone: all else is in the list of what is left
try w4a16-experts kimi_linear 0.3
has '"group_size":32'
hasnt '"model.layers.1.mlp.experts.0'
for left in model.layers.0.mlp.down_proj model.layers.0.self_attn.q_proj lm_head; do has "\"$left\""; done

# two schemes: each names its modules, and the file says that formats differ
try nvfp4-experts-fp8 glm4_moe 0.3 --ignore 'shared_experts.down_proj'
has '"format":"mixed-precision"'
has '"format":"float-quantized"'
has '"format":"nvfp4-pack-quantized"'
sed 's/"group_1"/\n&/' "$T/config" >"$T/groups"
[ "$(grep -c 'nvfp4-pack-quantized' "$T/groups")" -eq 1 ] || fail 'not two groups'
experts=$(grep 'nvfp4-pack-quantized' "$T/groups")
grep -q '"model.layers.1.mlp.experts.3.up_proj"' <<<"$experts" || fail 'an expert is not fp4'
grep -q 'self_attn' <<<"$experts" && fail 'attention is fp4'
grep -q 'shared_experts' <<<"$experts" && fail 'more than the experts are fp4'
expect 2 'scheme NVFP4 needs calibration text' "$SWAGE" quantize "$T/glm4_moe" -o "$T/no" --quiet \
    --recipe nvfp4-experts-fp8 --method rtn --ignore 'shared_experts.down_proj'
expect 2 'matches no linear' "$SWAGE" quantize "$TOY" -o "$T/no" --quiet --recipe nvfp4-experts-fp8 \
    --calib "$T/calib.u16"

# a scheme of a recipe's own, and what it may not be given
printf '{"method": "rtn", "format": "compressed-tensors", "group_size": 32, "overrides":
    [{"match": "down_proj", "scheme": "W8A16"}, {"match": "self_attn", "scheme": "FP8_DYNAMIC"}]}' >"$T/r.json"
rm -rf "$T/out"
expect 0 '' "$SWAGE" quantize "$TOY" -o "$T/out" --quiet --recipe "$T/r.json"
expect 0 '' "$SWAGE" verify "$T/out" --against "$TOY" --quiet --text "$T/calib.u16" --window 48
expect 0 '' "$SWAGE" convert "$T/out" --to swage -o "$T/tiles" --quiet
expect 0 '' "$SWAGE" convert "$T/tiles" --to compressed-tensors -o "$T/back" --quiet
cmp -s "$T/out/model.safetensors" "$T/back/model.safetensors" || fail 'three schemes do not come back'
refuse() { # CODE TEXT RECIPE
    printf '%s' "$3" >"$T/r.json"
    expect "$1" "$2" "$SWAGE" quantize "$TOY" -o "$T/no" --quiet --recipe "$T/r.json"
    absent "$T/no"
}
refuse 3 "overrides*0*: scheme does not know 'FP8_BLOK'; did you mean FP8_BLOCK?" \
    '{"overrides": [{"match": "o_proj", "scheme": "FP8_BLOK"}]}'
refuse 2 "override 'o_proj': a scheme of floats fixes width" \
    '{"method": "rtn", "overrides": [{"match": "o_proj", "scheme": "FP8_BLOCK", "bits": 4}]}'
refuse 2 "override 'o_proj': mx_scale is for scales that are powers of two" \
    '{"method": "rtn", "overrides": [{"match": "o_proj", "scheme": "FP8_BLOCK", "mx_scale": "ocp"}]}'
refuse 4 'o_proj: gptq' \
    '{"method": "rtn", "format": "gptq", "group_size": 32, "overrides": [{"match": "o_proj", "scheme": "FP8_DYNAMIC"}]}'
finish
