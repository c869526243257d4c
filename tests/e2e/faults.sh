#!/bin/bash
# Planted faults: verify must fail on each, in every format, without the help of file hashes.
. "$(dirname "$0")/lib.bash"
W=model.layers.1.mlp.down_proj # [256, 768], 6 groups of 128

# Byte maps for tr: swap the nibbles of a byte; add one to both; all 256 bytes in order.
swapped= plus_one= every=
for ((i = 0; i < 256; i++)); do
    printf -v s '\\%03o' $((i % 16 * 16 + i / 16)); swapped+=$s
    printf -v s '\\%03o' $(((i / 16 + 1) % 16 * 16 + (i + 1) % 16)); plus_one+=$s
    printf -v s '\\%03o' "$i"; every+=$s
done
swap_nibbles() { LC_ALL=C tr "$every" "$swapped"; }
add_one() { LC_ALL=C tr "$every" "$plus_one"; }
rotate() { # BYTES: what stood there moves to the end
    cat >"$T/part"
    tail -c +$(($1 + 1)) "$T/part"
    head -c "$1" "$T/part"
}

# edit FILE TENSOR BYTES FILTER... : a tensor's data through a filter
edit() {
    local file=$1 at
    at=$(offset_of "$file" "$2")
    tail -c +$((at + 1)) "$file" | head -c "$3" >"$T/before"
    "${@:4}" <"$T/before" >"$T/after"
    [ "$(wc -c <"$T/after")" -eq "$3" ] || fail "a filter changed the size of $2"
    cmp -s "$T/before" "$T/after" && fail "the fault in $2 changes nothing"
    dd if="$T/after" of="$file" bs=64K seek="$at" oflag=seek_bytes conv=notrunc status=none
}

# caught FORMAT WHAT TENSOR BYTES FILTER...: plant it in a fresh copy, and verify has to say so
caught() {
    rm -rf "$T/bad"
    cp -r "$T/$1" "$T/bad"
    rm "$T/bad/manifest.json" # its hashes would give every fault away
    edit "$T/bad/model.safetensors" "$3" "$4" "${@:5}"
    expect 1 "$2" "$SWAGE" verify "$T/bad" --against "$TINY" --quiet
}

for format in swage gptq gptq_v2 compressed-tensors; do
    expect 0 '' "$SWAGE" quantize "$TINY" --quiet --method rtn --asym -f $format -o "$T/$format"
    cp -r "$T/$format" "$T/good"
    rm "$T/good/manifest.json"
    expect 0 '' "$SWAGE" verify "$T/good" --against "$TINY" --quiet
    rm -r "$T/good"
done

# half a byte of one weight: nothing but the hash can tell, and the hash does
cp -r "$T/swage" "$T/bad"
edit "$T/bad/model.safetensors" $W.tiles 1 swap_nibbles
expect 1 'model.safetensors' "$SWAGE" verify "$T/bad" --against "$TINY" --quiet

# swapped nibbles in one linear
caught swage $W $W.tiles 98304 swap_nibbles
caught gptq $W $W.qweight 98304 swap_nibbles
caught gptq_v2 $W $W.qweight 98304 swap_nibbles
caught compressed-tensors $W $W.weight_packed 98304 swap_nibbles
# scales off by one group
caught swage $W $W.tile_scales 3072 rotate 128
caught gptq $W $W.scales 3072 rotate 512
caught gptq_v2 $W $W.scales 3072 rotate 512
caught compressed-tensors $W $W.weight_scale 3072 rotate 2
# zero points off by one
caught swage $W $W.tile_zeros 1536 add_one
caught gptq $W $W.qzeros 768 add_one
caught gptq_v2 $W $W.qzeros 768 add_one
caught compressed-tensors $W $W.weight_zero_point 768 add_one
# block scales and codes of fp8
expect 0 '' "$SWAGE" quantize "$TINY" --quiet --method rtn -s FP8_BLOCK -f fp8 -o "$T/fp8"
caught fp8 $W $W.weight_scale_inv 48 rotate 4
caught fp8 $W $W.weight 98304 rotate 256
caught fp8 'scale of channel 0' $W.weight_scale_inv 48 tr '\0-\377' '\377'
# a tensor that should have been copied
caught swage model.norm.weight model.norm.weight 512 rotate 2
caught gptq model.embed_tokens.weight model.embed_tokens.weight 4194304 rotate 512

# a transposed weight: quantize a source whose q_proj [256, 256] is transposed
model turned "$TINY"
transpose() {
    od -An -v -tx1 -w2 | awk '{ v[NR - 1] = "\\x" $1 "\\x" $2 }
        END { for (c = 0; c < 256; c++) for (r = 0; r < 256; r++) printf "%s", v[r * 256 + c] }' |
        while IFS= read -r line || [ -n "$line" ]; do printf '%b' "$line"; done
}
edit "$T/turned/model.safetensors" model.layers.2.self_attn.q_proj.weight 131072 transpose
expect 0 '' "$SWAGE" quantize "$T/turned" --quiet --method rtn -o "$T/bad2"
rm "$T/bad2/manifest.json"
expect 1 'model.layers.2.self_attn.q_proj' "$SWAGE" verify "$T/bad2" --against "$TINY" --quiet
finish
