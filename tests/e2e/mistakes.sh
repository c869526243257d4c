#!/bin/bash
# What people give by mistake, or find half done: the message says what it is and what to do.
. "$(dirname "$0")/lib.bash"

OUT=$T/out
quantize() { "$SWAGE" quantize --quiet -o "$OUT" --method rtn "$@"; }
lfs() { printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 4711\n' 7 >"$1"; }

# --- pointers of Git LFS in place of files
PULL='a pointer of Git LFS, not the file itself; run "git lfs pull" in its repository'
for name in model.safetensors pytorch_model.bin config.json model.safetensors.index.json; do
    model m
    [ $name = config.json ] || rm "$T/m/model.safetensors"
    lfs "$T/m/$name"
    expect 3 "m/$name: $PULL" quantize "$T/m"
    expect 3 "m/$name: $PULL" "$SWAGE" inspect --quiet "$T/m"
    expect 3 "m/$name: $PULL" "$SWAGE" convert --quiet "$T/m" --to bf16 -o "$OUT"
    absent "$OUT"
done
lfs "$T/x.safetensors"
expect 3 "x.safetensors: $PULL" "$SWAGE" inspect "$T/x.safetensors"
lfs "$T/x.gguf"
expect 3 "x.gguf: $PULL" "$SWAGE" inspect "$T/x.gguf"
expect 3 "x.gguf: $PULL" quantize "$T/x.gguf"
expect 3 "x.gguf: $PULL" "$SWAGE" convert "$T/x.gguf" --to bf16 -o "$OUT"
mkdir "$T/one"
lfs "$T/one/x.gguf"
expect 3 "one/x.gguf: $PULL" quantize "$T/one"
lfs "$T/x.txt"
expect 3 "x.txt: $PULL" "$SWAGE" calibrate --quiet "$TINY" --calib "$T/x.txt" -o "$OUT"
model m
for name in tokenizer.json tokenizer.model; do
    lfs "$T/m/$name"
    expect 3 "m/$name: $PULL" quantize "$T/m"
    absent "$OUT"
    mv "$T/m/$name" "$T/pointer"
done
mv "$T/pointer" "$T/m/tokenizer.json"
expect 3 "m/tokenizer.json: $PULL" "$SWAGE" generate --quiet "$T/m"
lfs "$T/m/LICENSE" # nobody reads it: it is copied as it is
lfs "$T/m/picture.png" # no part of a checkpoint: it stays
rm "$T/m/tokenizer.json"
expect 0 '' quantize "$T/m"
cmp -s "$T/m/LICENSE" "$OUT/LICENSE" || fail 'a side file was not copied as it is'
# directories stay where they are, and it is said; so does the list of them, without which loaders do
# not look for them
mkdir "$T/m/1_Pooling" "$T/m/additional_chat_templates" "$T/m/.cache"
echo "[]" >"$T/m/modules.json"
expect 0 '' quantize "$T/m" --group-size 32 --force
grep -q 'left  *1_Pooling/, additional_chat_templates/, modules.json: not copied; copy these yourself .* pools' "$T/stdout" ||
    fail "$(grep ^left "$T/stdout")"
grep '^left.*modules.json.*no part of a checkpoint' "$T/stdout" && fail 'a list of directories is called no part'
absent "$OUT/modules.json"
expect 0 '' "$SWAGE" convert --quiet "$OUT" --to bf16 -o "$T/back"
rm -r "$T/back" "$T/m/1_Pooling" "$T/m/additional_chat_templates" "$T/m/.cache" "$T/m/modules.json"
absent "$OUT/picture.png"
rm -r "$OUT"

# --- an adapter, a folder of the hub's cache, several GGUF files, a file
mkdir "$T/lora"
printf '{"peft_type":"LORA","base_model_name_or_path":"org/base-7b"}' >"$T/lora/adapter_config.json"
container '{}' 0 >"$T/lora/adapter_model.safetensors"
LORA='lora: has adapter_config.json, so it is an adapter (LoRA) of org/base-7b and no model; merge it'
expect 4 "$LORA" quantize "$T/lora"
expect 4 "$LORA" "$SWAGE" inspect "$T/lora"
expect 4 "$LORA" "$SWAGE" verify "$T/lora"
expect 4 "$LORA" "$SWAGE" generate "$T/lora"
cp "$TOY/config.json" "$T/lora/"
expect 4 "$LORA" quantize "$T/lora"
cp "$TOY/model.safetensors" "$T/lora/" # a merged model with the adapter's config left in it
expect 0 '' quantize "$T/lora"
rm -r "$OUT"

HUB=$T/models--org--name
mkdir -p "$HUB/snapshots/0123abcd" "$HUB/blobs" "$HUB/refs"
SAYS="models--org--name: a folder of the Hugging Face cache; give its snapshot instead: $HUB/snapshots/0123abcd"
expect 2 "$SAYS" quantize "$HUB"
expect 2 "$SAYS" "$SWAGE" inspect "$HUB"
expect 2 "$SAYS" "$SWAGE" plan "$HUB"
expect 2 "$SAYS" "$SWAGE" verify "$HUB"
mkdir "$HUB/snapshots/4567cdef"
expect 2 'give one of its snapshots instead: ' quantize "$HUB"
grep -q 'snapshots/4567cdef' "$T/stderr" && grep -q 'snapshots/0123abcd' "$T/stderr" ||
    fail 'the snapshots are not named'
rm -r "$HUB/snapshots"
mkdir "$HUB/snapshots"
expect 2 'without a snapshot' quantize "$HUB"

mkdir "$T/two"
printf GGUF >"$T/two/a.gguf"
printf GGUF >"$T/two/b.gguf"
expect 2 'two: has no config.json, and 2 GGUF files; give the path of one of them: ' quantize "$T/two"
expect 2 'model.safetensors: a file that is no GGUF; give the folder' quantize "$TOY/model.safetensors"
expect 5 "none: no such directory" quantize "$T/none"

# --- links to files elsewhere: refused, unless the user trusts them
mkdir "$T/far"
cp "$TINY/model.safetensors" "$TINY/tokenizer.json" "$T/far/"
model m "$TINY"
rm "$T/m/model.safetensors"
ln -s "$T/far/model.safetensors" "$T/m/model.safetensors"
SAYS='m/model.safetensors: a link to * outside of the model*; give --follow-links if you trust'
printf hello >"$T/prompt.txt"
head -c 3000 calib_data/eval.txt >"$T/text.txt"
links() { # COMMAND... : refused, and served with the option
    expect 5 "$SAYS" "$SWAGE" "$@" --quiet
    expect 0 '' "$SWAGE" "$@" --quiet --follow-links
}
links inspect "$T/m"
links plan "$T/m"
links quantize "$T/m" --method rtn -o "$OUT"
links verify "$OUT" --against "$T/m"
links calibrate "$T/m" --calib "$T/text.txt" --seq-len 64 --samples 2 -o "$T/m.stats"
links generate "$T/m" --prompt hello -n 2
rm -r "$OUT"
links convert "$T/m" --to f16 -o "$OUT"
cmp -s <(head -c 4000 "$OUT/tokenizer.json") <(head -c 4000 "$TINY/tokenizer.json") || fail 'no tokenizer'
rm -r "$OUT"

# --- a config of compressed-tensors that says more than the tensors hold; floats beside codes
for scheme in FP8_DYNAMIC MXFP4A16 W8A8; do
    expect 0 '' quantize "$TOY" --scheme $scheme --format compressed-tensors
    rm -rf "$T/q"
    mv "$OUT" "$T/q"
    sed -i '0,/"symmetric":[ \t]*true/s//"symmetric":false/' "$T/q/config.json"
    SAYS='config.json: group_0: weights: "symmetric" is false, and weights of * are read without zero points'
    expect 4 "$SAYS" "$SWAGE" convert --quiet "$T/q" --to bf16 -o "$OUT"
    expect 4 "$SAYS" quantize "$T/q"
    expect 4 "$SAYS" "$SWAGE" inspect --quiet "$T/q"
    absent "$OUT"
done
NAME=model.layers.0.mlp.down_proj
expect 0 '' quantize "$TOY" --format compressed-tensors
mv "$OUT" "$T/c"
container "{\"$NAME.weight\":{\"dtype\":\"BF16\",\"shape\":[128,256],\"data_offsets\":[0,65536]}}" 65536 \
    >"$T/c/more.safetensors"
printf '{"metadata":{},"weight_map":{"%s.weight":"more.safetensors","%s.weight_scale":"model.safetensors"}}' \
    $NAME $NAME >"$T/c/model.safetensors.index.json"
SAYS="more.safetensors: tensor \"$NAME.weight\" is there beside the codes of the same linear (\"weight_packed\")"
for to in bf16 gptq swage; do
    expect 3 "$SAYS" "$SWAGE" convert --quiet "$T/c" --to $to -o "$OUT"
    absent "$OUT"
done
expect 3 "$SAYS" quantize "$T/c"
expect 3 "$SAYS" "$SWAGE" inspect --quiet "$T/c"
head -c 32768 /dev/zero >"$T/some.u16"
expect 3 "$SAYS" "$SWAGE" calibrate --quiet "$T/c" --calib "$T/some.u16" --seq-len 64 -o "$OUT"
absent "$OUT"
# a name that the output needs for something else
model m
container "{\"$NAME.qweight\":{\"dtype\":\"I32\",\"shape\":[4],\"data_offsets\":[0,16]}}" 16 \
    >"$T/m/more.safetensors"
printf '{"metadata":{},"weight_map":{"%s.qweight":"more.safetensors","%s.weight":"model.safetensors"}}' \
    $NAME $NAME >"$T/m/model.safetensors.index.json"
expect 3 "tensor \"$NAME.qweight\" would be written twice" quantize "$T/m" --format gptq
absent "$OUT"

# --- names of files that are no UTF-8: escaped where they are written, refused where they cannot be
BAD=$T/$'cal\xff\xfeib.txt'
head -c 6000 calib_data/calib.txt >"$BAD"
expect 0 '' "$SWAGE" quantize "$TINY" -o "$OUT" --calib "$BAD" --samples 2 --seq-len 64 --json --quiet \
    --allow-fallback
iconv -f UTF-8 -t UTF-8 "$T/stdout" >/dev/null || fail 'the result is no UTF-8'
iconv -f UTF-8 -t UTF-8 "$OUT/manifest.json" >/dev/null || fail 'the manifest is no UTF-8'
grep -qF 'cal\\xff\\xfeib.txt' "$OUT/manifest.json" || fail 'the manifest does not name the text'
rm -r "$OUT"
cp -r "$TOY" "$T/"$'mo\xffdel'
"$SWAGE" inspect --json --quiet "$T/"$'mo\xffdel' 2>/dev/null >"$T/stdout"
iconv -f UTF-8 -t UTF-8 "$T/stdout" >/dev/null || fail 'the result of inspect is no UTF-8'
grep -qF 'mo\\xffdel' "$T/stdout" || fail 'the result does not name the model'
"$SWAGE" inspect --json "$T/"$'no\xffdel' 2>/dev/null | iconv -f UTF-8 -t UTF-8 >/dev/null ||
    fail 'the error is no UTF-8'
model m
: >"$T/m/"$'side\xff'
expect 4 'the name of this file is no UTF-8, so no manifest can hold it; rename it' quantize "$T/m"
absent "$OUT"

# --- too little memory: said in the end, and soon
limited() { # KIB COMMAND... : within limits, or exit 6 with a message
    local have limit=$1
    shift
    (ulimit -v "$limit"; exec timeout -s KILL 60 "$@") >/dev/null 2>"$T/stderr"
    have=$?
    [ $have -eq 0 ] || { [ $have -eq 6 ] && [ -s "$T/stderr" ]; } ||
        fail "ulimit -v $limit: exit $have, want 0 or 6: $* ($(head -c 300 "$T/stderr"))"
    rm -rf "$OUT" "$OUT.partial"
}
head -c 9000 calib_data/calib.txt >"$T/calib.txt"
for limit in 100000 250000; do
    limited $limit "$SWAGE" quantize "$TINY" -o "$OUT" -q --calib "$T/calib.txt" --samples 2 \
        --seq-len 64 --threads 2 --allow-fallback
    limited $limit "$SWAGE" quantize "$TOY" -o "$OUT" -q --method rtn --threads 2
    limited $limit "$SWAGE" generate "$TINY" -q -n 4 --threads 2
done
limited 250000 "$SWAGE" quantize "$TOY" -o "$OUT" -q --method rtn --threads 200
grep -q 'fewer --threads' "$T/stderr" || fail '200 threads fit, or are not said to be too many'

# --- one tensor of a GGUF
expect 0 '' "$SWAGE" convert --quiet "$TINY" --to gguf --type Q8_0 -o "$T/tiny.gguf"
expect 0 '' "$SWAGE" inspect --quiet "$T/tiny.gguf" --tensor model.layers.0.self_attn.q_proj.weight
grep -q '^values' "$T/stdout" || fail 'no values of a tensor of a GGUF'
# --- a head that the config ties to an embedding which it is not: before the work
model tie
sed -i 's/"tie_word_embeddings": *false/"tie_word_embeddings": true/' "$T/tie/config.json"
TIED='config.json ties lm_head to the embedding*set tie_word_embeddings to false, or take lm_head.weight out'
expect 3 "$TIED" quantize "$T/tie" --group-size 32
expect 3 "$TIED" "$SWAGE" plan --quiet "$T/tie" --group-size 32
absent "$OUT"

# --- patterns that name what stays in any case, as recipes of other programs do
model m
expect 0 '' quantize "$T/m" --group-size 32 --ignore lm_head
rm -r "$OUT"
expect 0 '' quantize calib_data/tiny-llama --ignore '^lm_head$' # tied: no tensor has that name
rm -r "$OUT"
expect 2 'matches no linear; every pattern here is a regular expression: leave out "re:"' \
    quantize "$T/m" --group-size 32 --ignore 're:.*lm_head'
expect 2 "'visual' matches no linear; swage inspect --tensors" quantize "$T/m" --group-size 32 --ignore visual
expect 2 "'q_prj' matches no linear; did you mean 'q_proj'\?" quantize "$T/m" --group-size 32 --ignore q_prj
# and what lies outside the decoder, which stays too
use_recipes
"$EXPAND" "$RECIPES/qwen3_vl" "$T/vl" || fail 'no model with a tower'
expect 0 '' "$SWAGE" plan --quiet "$T/vl" --group-size 32 --ignore visual
expect 2 "'visal' matches no linear; did you mean 'visual'\?" "$SWAGE" plan --quiet "$T/vl" --group-size 32 --ignore visal
absent "$OUT"
finish
