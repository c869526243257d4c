#!/bin/bash
# What BF16's own errors do to the likelihood of a toy whose routers decide near ties: near_ties.sh CSV
#
# A minimax_m2 of two layers with random weights, in sizes that engines' kernels take, once with 2 of
# 8 experts chosen and once with 4 of 4, so that nothing is chosen; as it is and in FP8_BLOCK. Each
# runs over 8 windows of 256 tokens drawn from it, with an error on every output of its linears of
# 0.001 and of 0.002 times its size (BF16 rounds by up to 0.002) for 8 seeds. How far the mean NLL
# moves is how far two engines that differ in such roundings alone may be apart.
set -u
cd "$(dirname "$0")/../.." || exit 2
csv=$1 build=${BUILD:-build/release}
for tool in expand_recipe noise_shift; do make -s "$build/tests/tools/$tool" >/dev/null || exit 2; done
T=$(mktemp -d "${TMPDIR:-/tmp}/swage-ties.XXXXXX") || exit 2
trap 'rm -rf "$T"' EXIT

# toy EXPERTS CHOSEN: a model directory $T/toy
toy() {
    rm -rf "$T/toy" "$T/recipe"
    mkdir "$T/recipe"
    cp tests/golden/recipes/minimax_m2/generation_config.json "$T/recipe"
    sed -E -e 's/("head_dim": ).*/\164,/; s/("hidden_size": ).*/\1256,/' \
        -e 's/("intermediate_size": ).*/\1256,/' -e "s/(\"num_local_experts\": ).*/\\1$1,/" \
        -e "s/(\"num_experts_per_tok\": ).*/\\1$2,/" \
        tests/golden/recipes/minimax_m2/config.json >"$T/recipe/config.json"
    awk -v experts="$1" '
    # deviation d around c, as the recipes have it: multiples of 1/512
    function add(name, shape, c, d) {
        printf "%s{\"name\":\"%s.weight\",\"dtype\":\"BF16\",\"shape\":[%s],\"center\":%d.0,\"scale\":%.9f}",
            n++ ? ",\n" : "", name, shape, c, int(d * sqrt(3) * 512 + 0.5) / 512
    }
    BEGIN {
        w = 0.15 / sqrt(2)
        print "{\"seed_rule\":\"fnv1a64(name), splitmix64\",\"tensors\":["
        add("lm_head", "320,256", 0, w); add("model.embed_tokens", "320,256", 0, 0.15)
        for (l = 0; l < 2; l++) {
            p = "model.layers." l "."; moe = p "block_sparse_moe."; a = p "self_attn."
            for (e = 0; e < experts; e++)
                for (i = 1; i <= 3; i++) add(moe "experts." e ".w" i, "256,256", 0, w)
            add(moe "gate", experts ",256", 0, w)
            add(p "input_layernorm", 256, 1, 0.25); add(p "post_attention_layernorm", 256, 1, 0.25)
            add(a "q_norm", 256, 1, 0.25); add(a "k_norm", 128, 1, 0.25)
            add(a "q_proj", "256,256", 0, w); add(a "k_proj", "128,256", 0, w)
            add(a "v_proj", "128,256", 0, w); add(a "o_proj", "256,256", 0, w)
            printf ",\n{\"name\":\"%se_score_correction_bias\",\"dtype\":\"BF16\",\"shape\":[%d],\"center\":0.0,\"scale\":0.345703125}", moe, experts
        }
        add("model.norm", 256, 1, 0.25)
        print "]}"
    }' >"$T/recipe/recipe.json"
    "$build/tests/tools/expand_recipe" "$T/recipe" "$T/toy" || exit 2
}

echo 'model,experts,chosen,scheme,noise,nll,shift_rms,shift_largest,token_rms' >"$csv"
for of in '8 2' '4 4'; do
    # shellcheck disable=SC2086
    toy $of
    rm -rf "$T/fp8"
    "$build/swage" quantize "$T/toy" -o "$T/fp8" --scheme FP8_BLOCK --method rtn --format fp8 -q \
        >/dev/null || exit 2
    for scheme in original FP8_BLOCK; do
        dir=$T/toy
        [ $scheme = original ] || dir=$T/fp8
        for noise in 0.001 0.002; do
            figures=$("$build/tests/tools/noise_shift" "$T/toy" "$dir" 256 8 $noise 8) || exit 2
            echo "minimax_m2,${of/ /,},$scheme,$noise,${figures// /,}" | tee -a "$csv"
        done
    done
done
