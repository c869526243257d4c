#!/bin/bash
# A run that is killed continues where it was, to the same bytes; one whose inputs have changed, or
# whose journal is damaged, says so and touches nothing.
. "$(dirname "$0")/lib.bash"
KILLS=12
OUT=$T/out
PART=$OUT.partial
head -c 2048 "$PWD/calib_data/calib.u16" >"$T/calib.u16"
model tiny "$TINY"
# 6 blocks of three linears, 2 windows of 64 tokens; a function in the background would be another process
Q=("$SWAGE" quantize "$T/tiny" --calib "$T/calib.u16" --samples 2 --seq-len 64 --ignore mlp o_proj)
quantize() { "${Q[@]}" -o "$1" --quiet "${@:2}"; } # OUT [option...]
# Its note is the one line on stderr; of a run that takes long there are others, of its progress.
continue_aloud() {
    "${Q[@]}" -o "$OUT" 2>"$T/aloud"
    local code=$?
    grep -v '^quantize: ' "$T/aloud" >&2
    return $code
}
same() {
    diff -r "$1" "$2" >/dev/null && return
    fail "$1 and $2 differ: $(diff -rq "$1" "$2" | head -n 3)"
}
lines() { if [ -f "$PART/journal" ]; then wc -l <"$PART/journal"; else echo 0; fi; }

# kill_at SECONDS.FRACTION [option...]: 0 when the run was killed, 1 when it came to its end before
kill_at() {
    "${Q[@]}" -o "$OUT" --quiet "${@:2}" >/dev/null 2>"$T/stderr" &
    local pid=$!
    sleep "$1"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    local code=$?
    [ $code -eq 137 ] && return 0
    [ $code -eq 0 ] || fail "exit $code, want 0: $(cat "$T/stderr")"
    return 1
}
# kill_after N [option...]: killed when N blocks are in the journal
kill_after() {
    hold pwrite /journal "$1" "${Q[@]}" -o "$OUT" --quiet "${@:2}" >/dev/null 2>"$T/stderr"
    kill -9 $pid
    wait $pid 2>/dev/null
    [ -d "$PART" ] && [ ! -d "$OUT" ] && [ "$(lines)" -eq $(($1 + 1)) ] ||
        fail "$(lines) lines in the journal of a run that was killed after $1 blocks: $(cat "$T/stderr")"
}

begin_us=${EPOCHREALTIME/./}
expect 0 '' quantize "$T/whole"
whole_us=$((${EPOCHREALTIME/./} - begin_us))

# at twelve random moments, with one thread and with two; whenever a run gets through, a new one
seed=${SEED:-$$}
RANDOM=$seed
echo "seed $seed (SEED=N repeats the moments)"
n_kills=0 n_resumed=0
while [ $n_kills -lt $KILLS ] && [ $failures -eq 0 ]; do
    before=$(lines)
    us=$((RANDOM * whole_us / 32768))
    if kill_at $((us / 1000000)).$(printf %06d $((us % 1000000))) --threads $((1 + n_kills % 2)); then
        n_kills=$((n_kills + 1))
        # killed after the last step, while it was read back or its journal was removed
        [ ! -d "$OUT" ] || { same "$T/whole" "$OUT" && rm -rf "$OUT" "$PART" && continue; }
        [ "$before" -gt 1 ] && n_resumed=$((n_resumed + 1))
        # what was in the journal stays in it
        [ ! -d "$PART" ] || [ "$(lines)" -ge "$before" ] || fail 'the journal has shrunk'
    else
        same "$T/whole" "$OUT"
        absent "$PART"
        rm -r "$OUT"
    fi
done
expect 0 '' quantize "$OUT"
same "$T/whole" "$OUT"
absent "$PART"
rm -r "$OUT"
echo "$n_kills kills, $n_resumed of them in runs that continued others"

# killed between the renames at the end: the shard has its last name, the rest is missing
kill_after 2
mv "$PART/checkpoint/model.safetensors.part" "$PART/checkpoint/model.safetensors"
for left in config.json manifest.json tokenizer.json.tmp-17; do
    echo '{}' >"$PART/checkpoint/$left"
    printf '%s\0' "${left%.tmp-17}" >>"$PART/swage-work" # as the run itself would have noted it
done
expect 0 'continuing' continue_aloud
same "$T/whole" "$OUT"
rm -r "$OUT"

# half a line at the end of the journal is what a kill leaves
kill_after 1
head -n 2 "$PART/journal" >"$T/two"
{ cat "$T/two"; head -c 100 "$T/two"; } >"$PART/journal"
expect 0 '' quantize "$OUT"
same "$T/whole" "$OUT"
rm -r "$OUT"

# other inputs: refused with the reason, and what is there stays as it was
kill_after 2
cp -r "$PART" "$T/kept"
refused() { # TEXT COMMAND...
    expect 2 "$1" "${@:2}"
    same "$T/kept" "$PART"
    absent "$OUT/"
}
refused 'settings.damp was 0.01 and is 0.02' quantize "$OUT" --damp 0.02
refused 'settings.seed was 0 and is 3' quantize "$OUT" --seed 3
refused 'shard_bytes was 5368709120 and is 1048576' quantize "$OUT" --shard-size 1M
refused 'ignored' quantize "$OUT" --ignore layers.5 mlp o_proj
refused 'settings' quantize "$OUT" --group-size 64
at=$(offset_of "$T/tiny/model.safetensors" model.layers.5.mlp.up_proj.weight)
cp "$T/tiny/model.safetensors" "$T/saved"
poke "$T/tiny/model.safetensors" "$at" '\x01\x3c'
refused 'inputs.model.safetensors.sha256 was' quantize "$OUT"
mv "$T/saved" "$T/tiny/model.safetensors"
cp "$T/calib.u16" "$T/saved"
poke "$T/calib.u16" 300 '\x11'
refused 'calibration.files.calib.u16.sha256 was' quantize "$OUT"
mv "$T/saved" "$T/calib.u16"
chmod u+w "$T/tiny/config.json"
echo ' ' >>"$T/tiny/config.json"
refused 'inputs.config.json.bytes was' quantize "$OUT"
model tiny "$TINY"

# a journal or a shard that is damaged
damaged() { # TEXT
    expect 3 "$1*--restart" quantize "$OUT"
    rm -rf "$PART"
    cp -r "$T/kept" "$PART"
}
poke "$PART/journal" 70 'X'
damaged 'line 1 is damaged'
sed -i 's/"damp_retries":0/"damp_retries":1/' "$PART/journal"
damaged 'line 2 is damaged'
sed -i 2d "$PART/journal"
damaged 'line 2 is damaged'
: >"$PART/journal"
damaged 'does not begin as a journal'
at=$(offset_of "$PART/checkpoint/model.safetensors.part" model.layers.1.self_attn.k_proj.tiles)
poke "$PART/checkpoint/model.safetensors.part" "$at" '\xff\x00\xff\x00'
damaged 'model.layers.1.self_attn.k_proj.tiles'
rm "$PART/checkpoint/model.safetensors.part"
damaged 'is not what an earlier run wrote'

# --restart drops it; what is nobody's run is left alone
expect 0 '' quantize "$OUT" --restart --damp 0.02
absent "$PART"
expect 0 '' quantize "$T/other" --damp 0.02
same "$T/other" "$OUT"
rm -r "$OUT"
mkdir "$PART"
echo mine >"$PART/thesis"
expect 2 'holds thesis and no swage-work of this directory' quantize "$OUT" --restart
[ "$(cat "$PART/thesis")" = mine ] || fail 'a stranger lost a file'
rm -r "$PART"

# two runs for one output: the second is turned away
hold mkdir /checkpoint 1 "${Q[@]}" -o "$OUT" --quiet --threads 1 >/dev/null
expect 2 'another run is at work' quantize "$OUT"
kill -CONT $pid
wait $pid || fail 'the first of two runs failed'
same "$T/whole" "$OUT"

# factors that were folded into norms come back with their blocks
rm -r "$OUT" "$T/whole"
Q+=(--method awq --samples 4 --ignore 'layers\.[345]')
expect 0 '' quantize "$T/whole"
tr -d ' \n' <"$T/whole/manifest.json" | grep -q '"accepted":true' || fail 'no factor was taken'
kill_after 2
expect 0 'continuing' continue_aloud
same "$T/whole" "$OUT"

# scales of a cache, of blocks before and after the kill
rm -rf "$OUT" "$T/whole"
Q=("$SWAGE" quantize "$T/tiny" --calib "$T/calib.u16" --samples 2 --seq-len 64 --ignore mlp o_proj \
    --format compressed-tensors --scheme FP8 --kv-cache fp8)
expect 0 '' quantize "$T/whole"
kill_after 2
expect 0 'continuing' continue_aloud
same "$T/whole" "$OUT"
finish
