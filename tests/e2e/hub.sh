#!/bin/bash
# Models by their id on the Hugging Face Hub, from its cache and never from the net.
. "$(dirname "$0")/lib.bash"

OUT=$T/out
COMMIT=0123456789abcdef0123456789abcdef01234567
unset HF_HOME XDG_CACHE_HOME
export HF_HUB_CACHE=$T/cache
REPO=$HF_HUB_CACHE/models--org--name
SNAPSHOT=$REPO/snapshots/$COMMIT
mkdir -p "$SNAPSHOT" "$REPO/blobs" "$REPO/refs"
printf %s $COMMIT >"$REPO/refs/main"
for file in "$TINY"/*.json "$TINY"/*.safetensors; do
    name=${file##*/}
    sum=$(sha256sum "$file" | cut -d' ' -f1)
    cp "$file" "$REPO/blobs/$sum"
    ln -s "../../blobs/$sum" "$SNAPSHOT/$name"
done
head -c 3000 calib_data/eval.txt >"$T/text.txt"

# --- every command that takes a model takes an id; the note says which snapshot
expect 0 "org/name is $SNAPSHOT" "$SWAGE" inspect org/name
expect 0 '' "$SWAGE" inspect --quiet org/name@main
expect 0 '' "$SWAGE" plan --quiet org/name@0123
expect 0 '' "$SWAGE" calibrate --quiet org/name --calib "$T/text.txt" --samples 2 --seq-len 64 -o "$T/s"
expect 0 '' "$SWAGE" generate --quiet org/name@$COMMIT --prompt Once -n 2
expect 0 '' "$SWAGE" quantize --quiet org/name --method rtn --format gptq -o "$OUT"
expect 0 "org/name is $SNAPSHOT" "$SWAGE" quantize org/name --method rtn --format gptq -o "$OUT" --force --progress none
grep -q "^next  *swage verify .* --against org/name@$COMMIT " "$T/stdout" || fail 'what comes next has a path of the cache in place of the id'
expect 0 '' "$SWAGE" verify --quiet "$OUT" --against org/name --text "$T/text.txt" --window 64
expect 0 '' "$SWAGE" verify --quiet org/name --text "$T/text.txt" --window 64
expect 0 '' "$SWAGE" convert --quiet org/name@main --to f16 -o "$T/f16"

# --- the manifest keeps id and commit, also behind a second step
said() { tr -d ' \t\n' <"$1/manifest.json" | grep -qF "\"hub\":{\"id\":\"org/name\",\"revision\":\"$COMMIT\"}"; }
said "$OUT" || fail 'the manifest does not say where the model is from'
expect 0 '' "$SWAGE" convert --quiet "$OUT" --to awq --allow-requantize -o "$T/awq"
said "$T/awq" || fail 'the origin does not say where the model is from'
expect 0 '' "$SWAGE" quantize --quiet "$TINY" --method rtn --format gptq -o "$T/plain"
grep -q '"hub"' "$T/plain/manifest.json" && fail 'a directory of its own is from the Hub'
cmp -s "$OUT/model.safetensors" "$T/plain/model.safetensors" || fail 'an id and its files differ'

# --- a path wins over an id
mkdir -p "$T/here/org"
cp -r "$TOY" "$T/here/org/name"
(cd "$T/here" && "$SWAGE" plan org/name >"$T/stdout" 2>&1)
grep -q snapshots "$T/stdout" && fail 'an id hides a path'
grep -q '^q_proj' "$T/stdout" || fail 'the path is not planned'

# --- what the cache does not have: the command that gets it
expect 5 'hf download org/other --revision main' "$SWAGE" inspect org/other
expect 5 'hf download org/name --revision v2' "$SWAGE" quantize org/name@v2 -o "$T/x"
expect 5 'hf download org/other --revision main' "$SWAGE" verify "$OUT" --against org/other
expect 2 "out: exists" "$SWAGE" quantize org/name -o "$OUT" --method rtn -q
touch "$REPO/blobs/ffff.incomplete"
expect 5 "blobs/ffff.incomplete is a download that was not finished; finish it: hf download org/name --revision $COMMIT" \
    "$SWAGE" plan org/name
expect 0 '' "$SWAGE" plan --quiet "$SNAPSHOT" # by its path it is the user's to know
rm "$REPO/blobs/ffff.incomplete"
rm "$SNAPSHOT/tokenizer.json"
ln -s ../../blobs/none "$SNAPSHOT/tokenizer.json"
expect 5 'tokenizer.json is a link to nothing' "$SWAGE" generate org/name

# --- what is no id is a path, and never leads out of the cache
ln -s "$TINY" "$T/cache/models--x--y"
for id in ../name org/../name org//name /org/name org/name@../x org/name@/etc 'org/name@a b' org/name@; do
    expect 5 "$id: no such directory; give the folder of a model" "$SWAGE" plan "$id"
done
absent "$T/x"
finish
