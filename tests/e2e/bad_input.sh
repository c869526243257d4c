#!/bin/bash
# Malformed and impossible input: one clear line, the documented exit code, nothing left behind.
. "$(dirname "$0")/lib.bash"

OUT=$T/out
# Without calibration, and with.
quantize() { "$SWAGE" quantize --quiet -o "$OUT" --method rtn "$@"; }
calibrated() { "$SWAGE" quantize --quiet -o "$OUT" "$@"; }

# --- containers: every way in which a header can lie
bad_container() { # CODE TEXT HEADER DATA_BYTES
    container "$3" "$4" >"$T/bad.safetensors"
    expect "$1" "$2" "$SWAGE" inspect "$T/bad.safetensors"
}
t() { printf '"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%s]}' "$@"; }
bad_container 3 'overlap' "{$(t a F32 2 0,8),$(t b F32 2 4,12)}" 12
bad_container 3 'bad.safetensors' "{$(t a F32 2 0,8),$(t b F32 2 12,20)}" 20     # gap
bad_container 3 'bad.safetensors' "{$(t a F32 4 0,16)}" 8                         # beyond the end
bad_container 3 'bad.safetensors' "{$(t a F32 2 0,8)}" 12                         # a rest
bad_container 3 'bad.safetensors' "{$(t a F32 3 0,8)}" 8                          # shape and bytes
bad_container 3 'bad.safetensors' "{$(t a F32 2 8,0)}" 8                          # backwards
bad_container 3 'bad.safetensors' "{$(t a F32 -1 0,8)}" 8
bad_container 3 'bad.safetensors' "{$(t a F32 4611686018427387905,4 0,8)}" 8      # wraps
bad_container 3 'bad.safetensors' "{$(t a F33 2 0,8)}" 8
bad_container 3 'duplicate' "{$(t a F32 1 0,4),$(t a F32 1 4,8)}" 8
bad_container 3 'bad.safetensors' "$(printf '{"a":%s1%s}' "$(printf '[%.0s' {1..300})" "$(printf ']%.0s' {1..300})")" 0
bad_container 3 'bad.safetensors' '{"a"' 0
bad_container 3 'UTF-8' $'{"\xff\xfe":1}' 0
container "{$(t a F32 2 0,8)}" 8 >"$T/whole.safetensors"
expect 0 '' "$SWAGE" inspect "$T/whole.safetensors"
head -c 20 "$T/whole.safetensors" >"$T/bad.safetensors"
expect 3 'header' "$SWAGE" inspect "$T/bad.safetensors"
head -c 5 "$T/whole.safetensors" >"$T/bad.safetensors"
expect 3 'bad.safetensors' "$SWAGE" inspect "$T/bad.safetensors"
: >"$T/bad.safetensors"
expect 3 'bad.safetensors' "$SWAGE" inspect "$T/bad.safetensors"
{ le64 100000001; head -c 4096 /dev/zero; } >"$T/bad.safetensors"
expect 3 '100000001' "$SWAGE" inspect "$T/bad.safetensors"
{ le64 -1; head -c 4096 /dev/zero; } >"$T/bad.safetensors"
expect 3 'bad.safetensors' "$SWAGE" inspect "$T/bad.safetensors"

# --- model directories
model m
truncate -s -1 "$T/m/model.safetensors"
expect 3 'model.safetensors' quantize "$T/m"
model m
rm "$T/m/model.safetensors"
expect 5 "$T/m" quantize "$T/m"
expect 5 "$T/none" quantize "$T/none"
model m
rm "$T/m/config.json"
expect 5 'm: has no config.json; give the folder of a model' quantize "$T/m"
model m
printf '{"a":1,"a":2}' >"$T/m/config.json"
expect 3 'duplicate' quantize "$T/m"
model m
printf '[%.0s' {1..200} >"$T/m/config.json"
expect 3 'deep' quantize "$T/m"
model m
sed -i 's/"model_type": *"llama"/"model_type":"lama"/' "$T/m/config.json"
expect 4 'lama" is not supported; the nearest is llama; `swage list' calibrated "$T/m" \
    --calib "$T/m/config.json"
model m
sed -i 's/"vocab_size": *320/"vocab_size":321/' "$T/m/config.json"
expect 3 'embed_tokens.weight' quantize "$T/m"
expect 3 'embed_tokens.weight' "$SWAGE" inspect --quiet "$T/m"
model m
sed -i 's/"num_hidden_layers": *2/"num_hidden_layers":3/' "$T/m/config.json"
expect 3 'model.layers.2.' quantize "$T/m"
# a directory that may not be looked into is no id of a model
other=()
[ "$(id -u)" -ne 0 ] || other=(setpriv --reuid 65534 --clear-groups)
if "${other[@]}" "$SWAGE" --version >/dev/null 2>&1; then
    mkdir "$T/locked"
    chmod 0 "$T/locked"
    expect 5 'm: cannot be looked at: Permission denied' "${other[@]}" "$SWAGE" inspect "$T/locked/m"
    rmdir "$T/locked"
fi

# --- index: missing shard, path outside
model m
mv "$T/m/model.safetensors" "$T/m/a.safetensors"
printf '{"metadata":{},"weight_map":{"lm_head.weight":"b.safetensors"}}' >"$T/m/model.safetensors.index.json"
expect 5 'b.safetensors' quantize "$T/m"
printf '{"metadata":{},"weight_map":{"lm_head.weight":"../m/a.safetensors"}}' >"$T/m/model.safetensors.index.json"
expect 3 'a.safetensors' quantize "$T/m"
printf '{"metadata":{},"weight_map":{"nowhere.weight":"a.safetensors"}}' >"$T/m/model.safetensors.index.json"
expect 3 'nowhere.weight' quantize "$T/m"

model m
cp "$T/m/model.safetensors" "$T/m/other.safetensors"
mv "$T/m/model.safetensors" "$T/m/weights.safetensors"
expect 5 'm: 2 *.safetensors and no model.safetensors.index.json, which says * get it from where the model' quantize "$T/m"

# --- weights that are not numbers
head -c 32768 /dev/zero >"$T/some.u16"
for bits in '\xc0\x7f' '\x80\xff'; do
    model m
    at=$(offset_of "$T/m/model.safetensors" model.layers.1.mlp.down_proj.weight)
    poke "$T/m/model.safetensors" $((at + 2 * 77)) "$bits"
    expect 3 'model.layers.1.mlp.down_proj: element 77 is not finite' quantize "$T/m"
    expect 3 'down_proj: element 77 is not finite' calibrated "$T/m" --calib "$T/some.u16" --seq-len 64
    expect 3 'down_proj.weight: 1 of 32768 values are not finite, the first is element 77' \
        "$SWAGE" inspect --quiet --values "$T/m"
done
model m
at=$(offset_of "$T/m/model.safetensors" model.norm.weight)
poke "$T/m/model.safetensors" $((at + 10)) '\xc0\x7f'
expect 3 'tensor model.norm.weight: 1 of 128 values are not finite, the first is element 5' quantize "$T/m"

# --- text and tokens
TEXT=$PWD/calib_data/calib.txt
expect 5 'tokenizer.json: cannot open' calibrated "$TOY" --calib "$TEXT"
model m
cp "$TINY/tokenizer.json" "$T/m/"
expect 3 'has 8192 tokens, but the model embeds 320' calibrated "$T/m" --calib "$TEXT"
expect 3 'has 8192 tokens, but the model embeds 320' "$SWAGE" generate "$T/m"
printf '{"version":"1.0"}' >"$T/m/tokenizer.json"
expect 3 'tokenizer.json' calibrated "$T/m" --calib "$TEXT"
{ head -c 1000 "$TEXT"; printf '\xff'; } >"$T/bad.txt"
expect 3 'bad.txt*1000' calibrated "$TINY" --calib "$T/bad.txt"
head -c 20000 "$TEXT" >"$T/short.txt"
expect 2 'too little calibration text: * tokens, 128 windows of 512 take 65536; give more text or --samples' \
    calibrated "$TINY" --calib "$T/short.txt"
head -c 100 "$TEXT" >"$T/short.txt"
expect 2 'one window takes 512; give more text or a smaller --seq-len' \
    calibrated "$TINY" --calib "$T/short.txt"
expect 5 'none.txt: cannot open' calibrated "$TINY" --calib "$T/none.txt"
printf '\x01\x00\x02' >"$T/odd.u16"
expect 3 'odd.u16' calibrated "$TOY" --calib "$T/odd.u16"
printf '\x01\x00\x40\x01' >"$T/beyond.u16"
expect 3 '320' calibrated "$TOY" --calib "$T/beyond.u16"
mkfifo "$T/pipe.txt"
expect 5 'pipe.txt: not a regular file; what a pipe * write it into a file first' calibrated "$TINY" --calib "$T/pipe.txt"
expect 5 'calib_data: not a regular file, but a directory' calibrated "$TINY" --calib "$PWD/calib_data"
expect 2 '--seq-len 4096 is beyond' calibrated "$TINY" --calib "$TEXT" --seq-len 4096

# --- settings that cannot be
expect 4 "experts.0.down_proj: groups of 128 do not divide its 64 inputs; --group-size 32, 64 or channel fits every linear here, or" \
    quantize "$PWD/tests/golden/arch/qwen3_moe"
expect 4 'down_proj: groups of 128 do not divide its 64 inputs; the scheme fixes its groups; *FP8_DYNAMIC* fits every linear here, or' \
    quantize "$PWD/tests/golden/arch/qwen3_moe" --scheme FP8_BLOCK
expect 4 'down_proj: groups of 128 do not divide its 64 inputs; --group-size 32 or 64 fits' \
    quantize "$PWD/tests/golden/arch/qwen3_moe" --format modelopt
expect 2 "--ignore 'nothing_like_it' matches no linear" quantize "$TOY" --ignore nothing_like_it
expect 2 "--ignore '(': " quantize "$TOY" --ignore '('
expect 2 'engines load the two as one' quantize "$TOY" --ignore q_proj
expect 2 'leaves nothing to quantize' quantize "$TOY" --ignore proj
expect 2 'method gptq needs calibration text' calibrated "$TOY"
expect 2 'say where the checkpoint goes' "$SWAGE" quantize "$TOY" --method rtn
expect 2 'did you mean --group-size?' quantize "$TOY" --grup-size 128
expect 2 'did you mean W4A16?' quantize "$TOY" --scheme W4A61
expect 2 'did you mean quantize?' "$SWAGE" quantise "$TOY"

# --- where the output goes
absent "$OUT"
mkdir "$OUT"
echo mine >"$OUT/precious"
expect 2 'exists; give --force' quantize "$TOY"
[ "$(cat "$OUT/precious")" = mine ] || fail 'an existing output was touched'
rm -r "$OUT"
model m
expect 2 "$T/m" "$SWAGE" quantize --quiet --method rtn "$T/m" -o "$T/m" --force
expect 2 "$T/m" "$SWAGE" quantize --quiet --method rtn "$T/m" -o "$T/m/out"
NO_FOLDER="$T/none: no such folder; make it, or name another for the output"
expect 5 "$NO_FOLDER" "$SWAGE" quantize --quiet --method rtn "$T/m" -o "$T/none/out"
expect 5 "$NO_FOLDER" "$SWAGE" convert --quiet "$T/m" --to f16 -o "$T/none/out"
expect 5 "$NO_FOLDER" "$SWAGE" convert --quiet "$T/m" --to gguf --type F16 --no-tokenizer -o "$T/none/out.gguf"
absent "$T/none"
cmp -s "$TOY/model.safetensors" "$T/m/model.safetensors" || fail 'the source was changed'
expect 0 '' quantize "$TOY"
expect 0 '' "$SWAGE" quantize --quiet --method rtn "$OUT" -o "$T/again"
# --- two ropes of which engines take the one or the other
model two
sed -i 's/^{/{"rope_scaling": {"rope_type": "linear", "factor": 2},/' "$T/two/config.json"
expect 3 'rope_scaling and rope_parameters say different things*take the wrong one out' "$SWAGE" plan --quiet "$T/two"
# a reader who has seen enough hears nothing of it
mkfifo "$T/gone"
: <"$T/gone" &
exec 3>"$T/gone"
wait $!
"$SWAGE" inspect "$TINY" --quiet >&3 2>"$T/stderr" && fail 'a result that nobody reads is written'
[ ! -s "$T/stderr" ] || fail "$(cat "$T/stderr")"
exec 3>&-
expect 5 'cannot write the result' bash -c "'$SWAGE' list >/dev/full"
finish
