#!/bin/bash
# Nothing that swage did not write is removed or replaced; a run whose input changes under it fails,
# names the input and publishes nothing; a run that dies leaves nothing that the next does not sweep.
. "$(dirname "$0")/lib.bash"
toy_tokens 2000 >"$T/toy.u16"
cd "$T" || exit 1
head -c 2048 "$TINY/../calib.u16" >calib.u16
model tiny "$TINY"
Q=("$SWAGE" quantize tiny --calib calib.u16 --samples 2 --seq-len 64 --ignore mlp o_proj --quiet)
RTN=("$SWAGE" quantize "$TOY" --method rtn --quiet)
CALIBRATE=("$SWAGE" calibrate tiny --calib calib.u16 --samples 2 --seq-len 64 --quiet)
GGUF=("$SWAGE" convert tiny --to gguf --quiet)

snapshot() { find . -path ./tiny -prune -o -print | sort | while read -r f; do
    [ -f "$f" ] && echo "$f $(sha256sum <"$f")" || echo "$f"; done; }
# untouched FILE...: what the user put there is still what it was
keep() { for f in "$@"; do mkdir -p "$(dirname "$f")" && echo "mine: $f" >"$f"; done; kept+=("$@"); }
kept=()
untouched() {
    local f
    for f in "${kept[@]}"; do [ "$(cat "$f" 2>&1)" = "mine: $f" ] || fail "lost: $f"; done
}
# calibrating FILE: $pid has begun to write FILE, and waits
# Whoever runs this under nohup ignores SIGHUP, and so would the run.
calibrating() {
    hold open /output 1 env --default-signal=HUP "${CALIBRATE[@]}" -o "$1" >/dev/null 2>stderr
    compgen -G "$1.partial-*/output" >/dev/null || fail "$1 has not begun"
}

# --- directories that only look like ours
keep out.partial/journal-of-training.md out.partial/checkpoint-500/weights out.partial-2024/notes \
    out.partial-17.0/notes out.old-17/notes
expect 2 'out.partial: holds * and no swage-work' "${RTN[@]}" -o out
expect 2 'out.partial: holds * and no swage-work' "${RTN[@]}" -o out --restart
untouched
rm -r out.partial
kept=(out.partial-2024/notes out.partial-17.0/notes out.old-17/notes)
expect 0 '' "${RTN[@]}" -o out
expect 0 '' "${RTN[@]}" -o out --force
expect 0 '' "$SWAGE" convert out --to compressed-tensors -o out2 --quiet
untouched
# --force replaces an output and nothing else
keep out/NOTES.md
expect 2 'out: holds NOTES.md, which swage did not write' "${RTN[@]}" -o out --force
expect 2 'out: holds NOTES.md, which swage did not write' \
    "$SWAGE" convert out2 --to gptq_v2 -o out --force --quiet
untouched
rm out/NOTES.md
kept=(out.partial-2024/notes out.partial-17.0/notes out.old-17/notes)
expect 0 '' "$SWAGE" convert out2 --to gptq_v2 -o out --force --quiet
keep home/thesis.md
expect 2 'home: holds thesis.md' "${RTN[@]}" -o home --force
untouched
# and says what is the matter with what cannot be a work directory
ln -s elsewhere link.partial
expect 2 'link.partial: is a link' "${RTN[@]}" -o link
rm link.partial

# --- files: no replacement without --force
expect 0 '' "${GGUF[@]}" -o new.gguf
expect 2 'new.gguf: exists; give --force' "${GGUF[@]}" -o new.gguf
calibrating x.stats
expect 2 'x.stats: another run is at work on it' "${CALIBRATE[@]}" -o x.stats
kill -CONT $pid
wait $pid || fail 'the first of two runs failed'
calibrating y.stats
keep y.stats
kill -CONT $pid
wait $pid
[ $? -eq 2 ] && grep -q 'y.stats: exists' stderr || fail "a file that came was replaced: $(cat stderr)"
untouched
for words in "verify out --report keep.json" "plan $TOY --emit-recipe keep.json" \
    "generate tiny -n 2 -o keep.json"; do
    keep keep.json
    # shellcheck disable=SC2086
    expect 2 'keep.json: exists; give --force' "$SWAGE" $words --quiet
    untouched
    # shellcheck disable=SC2086
    expect 0 '' "$SWAGE" $words --force --quiet
    [ "$(cat keep.json)" != "mine: keep.json" ] || fail "--force did not replace: $words"
done
unset 'kept[-1]' 'kept[-1]' 'kept[-1]'

# --- no output over an input, by whatever name
sum=$(sha256sum <new.gguf)
ln -s new.gguf soft.gguf
ln new.gguf hard.gguf
for name in new.gguf ./new.gguf soft.gguf hard.gguf "$T/new.gguf"; do
    expect 2 'is an input of this run' "$SWAGE" convert new.gguf --to gguf -o "$name" --force --quiet
done
[ "$(sha256sum <new.gguf)" = "$sum" ] || fail 'a source was replaced'
sum=$(sha256sum <calib.u16)
expect 2 'calib.u16: is an input of this run' "${CALIBRATE[@]}" -o calib.u16 --force
expect 2 'model.safetensors: is an input of this run' "${CALIBRATE[@]}" -o tiny/model.safetensors --force
expect 2 'toy.u16: is an input of this run' "$SWAGE" verify out2 --text toy.u16 --window 64 \
    --max-windows 1 --no-gap --report toy.u16 --force --quiet
[ "$(sha256sum <calib.u16)" = "$sum" ] || fail 'calibration text was replaced'

# --- signals: nothing stays; and what a kill leaves goes with the next run
for signal in HUP INT QUIT TERM USR1 XCPU PIPE; do
    calibrating s.stats
    kill -$signal $pid
    kill -CONT $pid
    wait $pid
    have=$?
    [ $have -eq 130 ] || fail "exit $have after SIG$signal, want 130"
    absent s.stats
done
calibrating s.stats
kill -KILL $pid
wait $pid 2>/dev/null
compgen -G 's.stats.partial-*' >/dev/null || fail 'a killed run left nothing to sweep'
expect 0 '' "${CALIBRATE[@]}" -o s.stats
cmp -s s.stats x.stats || fail 'other statistics after a kill'
rm s.stats
absent s.stats

# --- inputs that change while they are read
# changed FILE CHANGE CODE TEXT: begin, stop after a block, change the file, go on
changed() {
    cp "$1" saved
    hold pwrite /journal 1 "${Q[@]}" -o c >/dev/null 2>stderr
    eval "$2"
    kill -CONT $pid
    wait $pid
    have=$?
    [ $have -eq 5 ] || fail "exit $have, want 5: $2"
    [[ $(cat stderr) == *$3* ]] || fail "message: $(cat stderr)"
    [ ! -e c ] || fail 'published all the same'
    mv saved "$1"
    rm -rf c.partial
}
at=$(offset_of tiny/model.safetensors model.layers.5.mlp.up_proj.weight)
changed tiny/model.safetensors 'poke tiny/model.safetensors "$at" "\x01\x3c"' \
    'tiny/model.safetensors: it was changed while this run read it'
changed tiny/model.safetensors 'cp -p tiny/model.safetensors t; poke tiny/model.safetensors "$at" "\x01\x3c"
    touch -r t tiny/model.safetensors; rm t' 'tiny/model.safetensors: it was changed'
changed tiny/tokenizer_config.json 'echo >>tiny/tokenizer_config.json' \
    'tiny/tokenizer_config.json: it was changed while this run read it'
changed calib.u16 'poke calib.u16 300 "\x11"' 'calib.u16: it was changed while this run read it'
changed tiny/model.safetensors 'truncate -s 8192 tiny/model.safetensors' \
    'tiny/model.safetensors: cannot be read at offset * it was cut short to 8192 bytes'
cp tiny/model.safetensors saved
hold fflush /said 1 "$SWAGE" generate tiny -n 20 --temperature 1 --ignore-eos >said 2>stderr
truncate -s 8192 tiny/model.safetensors
kill -CONT $pid
wait $pid
[ $? -eq 5 ] && [[ $(cat stderr) == *'tiny/model.safetensors: cannot be read at offset '* ]] ||
    fail "generate from a truncated file: $(cat stderr)"
mv saved tiny/model.safetensors

# --- kills at any moment: the user's files stay, and the next run ends in the same bytes
seed=${SEED:-$$}
RANDOM=$seed
echo "seed $seed (SEED=N repeats the moments)"
before=$(snapshot)
expect 0 '' "$SWAGE" convert out --to compressed-tensors -o whole.ct --quiet
expect 0 '' "${GGUF[@]}" -o whole.gguf
expect 0 '' "${Q[@]}" -o whole.q
for i in {1..12}; do
    case $((i % 3)) in
        0) run=("$SWAGE" convert out --to compressed-tensors -o k --force --quiet) whole=whole.ct ;;
        1) run=("${GGUF[@]}" -o k.gguf --force) whole=whole.gguf ;;
        2) run=("${Q[@]}" -o k.q --force) whole=whole.q ;;
    esac
    "${run[@]}" >/dev/null 2>&1 &
    pid=$!
    sleep 0.0$((RANDOM % 10))$((RANDOM % 10))
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    untouched
    [ $((i % 2)) -eq 0 ] && continue # the next kill comes on top
    expect 0 '' "${run[@]}"
    diff -r "$whole" "k${whole#whole}" >/dev/null 2>&1 || diff -r "$whole" k >/dev/null ||
        fail "other bytes after a kill: ${run[*]}"
done
for run in "$SWAGE convert out --to compressed-tensors -o k" "${GGUF[*]} -o k.gguf" "${Q[*]} -o k.q"; do
    # shellcheck disable=SC2086
    expect 0 '' $run --force --quiet
done
rm -r k k.gguf k.q whole.ct whole.gguf whole.q
rm -f stdout stderr said
[ "$(snapshot | grep -v 'stderr\|stdout\|said')" = "$(grep -v 'stderr\|stdout\|said' <<<"$before")" ] ||
    fail "left behind: $(diff <(echo "$before") <(snapshot))"
untouched
finish
