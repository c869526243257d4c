#!/bin/bash
# The README's table of conversions against the program: every cell is tried, with each scheme that
# its format holds, and must be what the table says.
. "$(dirname "$0")/lib.bash"
names() { "$SWAGE" list "$1" | tail -n +2 | cut -d' ' -f1; }
HEAD='| from | exact to | exact for some schemes | rounded again | never |'
# mxfp4 holds experts alone.
EXPERTS=$PWD/tests/golden/arch/gpt_oss
GGUF_EXPERTS=$PWD/tests/golden/arch/qwen3_moe

# What TABLE says of FROM -> TO: exact, some, rounded or never.
cell() {
    sed -n "/^$HEAD\$/,/^\$/p" formats/README.md | awk -F'|' -v from="\`$1\`" -v to="$2" '
        function trim(s) { gsub(/^ +| +$/, "", s); return s }
        trim($2) == from {
            split("exact some rounded never", word, " ")
            for (i = 3; i <= 6; i++) {
                n = split(trim($i), list, ", ")
                for (k = 1; k <= n; k++) if (list[k] == to) print word[i - 2]
            }
        }'
}


# A Llama of one layer whose sides every format takes, and all linears alike.
square_model() {
    local name n rows cols at=0 header='' p=model.layers.0
    rm -rf "${T:?}/m"
    mkdir "$T/m"
    sed -e 's/"num_hidden_layers": *2/"num_hidden_layers":1/' \
        -e 's/"num_key_value_heads": *2/"num_key_value_heads":4/' -e 's/"intermediate_size": *256/"intermediate_size":128/' \
        "$TOY/config.json" >"$T/m/config.json"
    for name in "model.embed_tokens 320 128" "lm_head 320 128" "model.norm 128 " \
        "$p.input_layernorm 128 " "$p.post_attention_layernorm 128 " \
        "$p.self_attn.q_proj 128 128" "$p.self_attn.k_proj 128 128" "$p.self_attn.v_proj 128 128" \
        "$p.self_attn.o_proj 128 128" "$p.mlp.gate_proj 128 128" "$p.mlp.up_proj 128 128" \
        "$p.mlp.down_proj 128 128"; do
        read -r name rows cols <<<"$name"
        n=$((rows * ${cols:-1} * 2))
        header+="${header:+,}\"$name.weight\":{\"dtype\":\"BF16\",\"shape\":[$rows${cols:+,$cols}],\"data_offsets\":[$at,$((at + n))]}"
        at=$((at + n))
    done
    { container "{$header}" 0; yes "$(printf '\022\075\232\274\101\275\060')" | head -c $at; } \
        >"$T/m/model.safetensors"
}

# A checkpoint in FORMAT by SCHEME (W4A16/32: with groups of 32) of MODEL at $S; made once.
make() {
    local format=$1 scheme=${2%/*} group=${2#*/} model=$T/m more=()
    S=$T/src-$3-$1-${2/\//-}.$([ "$1" = gguf ] && echo gguf || echo dir)
    [ ! -e "$S.not" ] || return 1
    [ ! -e "$S" ] || return 0
    [ "$3" = experts ] && model=$EXPERTS && more=(--ignore self_attn)
    [ "$3" = gguf_experts ] && model=$GGUF_EXPERTS && more=(--ignore self_attn 'layers.1.mlp')
    [ "$group" = "$2" ] || more+=(--group-size "$group")
    [ "$scheme" = FP8 ] && more+=(--calib "$T/some.u16" --seq-len 32 --samples 2)
    [ "$1" = gguf ] && format=swage
    [ "$1" = modelopt ] && [ "$scheme" = W4A16 ] && format=gptq # for scales that are half floats
    if ! "$SWAGE" quantize "$model" -o "$S" -q --method rtn --scheme "$scheme" --format "$format" \
        --positive-scales "${more[@]}" >/dev/null 2>&1; then
        : >"$S.not"
        return 1
    fi
    [ "$1" != "$format" ] || return 0
    mv "$S" "$S.first"
    "$SWAGE" convert "$S.first" --to "$1" $([ "$1" = gguf ] && echo --no-tokenizer) -o "$S" -q \
        >/dev/null 2>&1 && return 0
    : >"$S.not"
    return 1
}

# Exit code of the conversion of $S, exact or rounded again.
exact() {
    local more=()
    [ "$1" = gguf ] && more=(--no-tokenizer)
    rm -rf "$T/b.gguf"
    "$SWAGE" convert "$S" --to "$1" -o "$T/b.gguf" -q "${more[@]}" >"$T/stdout" 2>"$T/stderr"
}
rounded() {
    local more=(--allow-requantize)
    [ "$1" = gguf ] && more+=(--no-tokenizer --type Q8_0)
    rm -rf "$T/b.gguf"
    "$SWAGE" convert "$S" --to "$1" -o "$T/b.gguf" -q "${more[@]}" >"$T/stdout" 2>"$T/stderr"
}

# The schemes to try for a target: what it is made for comes first.
schemes_for() {
    local first=''
    case $1 in
        gguf) first=W4A16/32 ;;
        fp8) first='FP8_BLOCK FP8' ;;
        fp8_hf) first=FP8 ;;
        mxfp4) first=MXFP4A16 ;;
    esac
    echo $first W4A16 W4A16_ASYM W4A16/32 W8A16 FP8 FP8_DYNAMIC FP8_BLOCK MXFP4A16 NVFP4A16
}

square_model
head -c 1024 /dev/zero >"$T/some.u16"
n_tried=0
for from in $(names formats) gguf; do
    for to in $(names formats) gguf; do
        [ "$from" = "$to" ] && continue
        model=plain done='' n_held=0
        [[ " $from $to " == *" mxfp4 "* ]] && model=experts
        [ $model = experts ] && [[ " $from $to " == *" gguf "* ]] && model=gguf_experts
        says=$(cell "$from" "$to")
        for scheme in $(schemes_for "$to"); do
            [ -z "$done" ] || break
            make "$from" "$scheme" $model || continue
            n_held=$((n_held + 1)) n_tried=$((n_tried + 1))
            case $says in
                exact | some) exact "$to" ;;
                *) rounded "$to" ;;
            esac
            case $says-$? in
                exact-0 | some-0) done=yes ;;
                some-4) ;;
                rounded-0)
                    grep -q requantized "$T/stdout" ||
                        fail "$from -> $to, $scheme: the table says 'rounded', and it was exact"
                    done=yes ;;
                never-4) done=yes ;;
                *) fail "$from -> $to, $scheme: the table says '$says', but $(cat "$T/stderr")" ;;
            esac
        done
        [ "$done" ] || { [ $n_held -eq 0 ] && [ "$says" = never ]; } ||
            fail "$from -> $to: the table says '$says', of $n_held schemes none: $(cat "$T/stderr")"
    done
done
[ $n_tried -ge 150 ] || fail "only $n_tried conversions were tried"
finish
