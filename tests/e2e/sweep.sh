#!/bin/bash
# A sweep: its table, what it recommends, what it does not do twice, and what it removes.
. "$(dirname "$0")/lib.bash"

DIR=$T/dir
SWEEP=("$SWAGE" sweep "$TOY" -o "$DIR" --text "$TOY/reference.safetensors" --window 32 --method rtn)
sweep() { "${SWEEP[@]}" --quiet "$@"; }
field() { tr -d ' \t\n' <"$DIR/sweep.json" | grep -o "\"$1\":[^,}]*" | head -n "${2:-1}" | tail -n 1; }

# --- three checkpoints, measured; the same bytes as by quantize
expect 0 '' sweep --schemes W4A16,W8A16 --schemes W3A16
for name in W4A16-swage W8A16-swage W3A16-swage; do
    [ -f "$DIR/$name.verify.json" ] || fail "no result of $name"
    grep -q "^$name .*%" "$T/stdout" || fail "$name is not in the table"
done
[ "$(grep -c front "$T/stdout")" -ge 1 ] || fail 'no front'
[ -f "$DIR/sweep.html" ] || fail 'no page'
grep -q 'KL divergence against the size' "$DIR/sweep.html" || fail 'no chart of divergence and size'
grep -q chosen "$T/stdout" && fail 'a choice that nobody asked for'
expect 0 '' "$SWAGE" quantize --quiet "$TOY" -o "$T/alone" --method rtn --scheme W8A16
diff -r "$T/alone" "$DIR/W8A16-swage" >/dev/null || fail 'not the bytes of quantize'
have=$(field bytes 2)
[ "$have" = "\"bytes\":$(cat "$DIR"/W8A16-swage/* | wc -c)" ] || fail "size of W8A16: $have"

# --- the same command repeats nothing; another text is measured again
stamp() { stat -c %n-%i-%y "$DIR"/*.verify.json "$DIR"/*/model.safetensors; }
before=$(stamp)
expect 0 '' sweep --schemes W4A16,W8A16,W3A16 --max-kl 1e9
[ "$before" = "$(stamp)" ] || fail 'the same command did something again'
grep -q 'chosen *.*W3A16-swage: the smallest' "$T/stdout" || fail "not the smallest: $(cat "$T/stdout")"
"${SWEEP[@]}" --schemes W4A16,W8A16,W3A16 --max-windows 2 >"$T/stdout" 2>"$T/stderr" || fail 'another text'
[ "$(grep -c 'measuring$' "$T/stderr")" -eq 3 ] || fail 'figures of another text were taken'
"${SWEEP[@]}" --schemes W4A16,W8A16,W3A16,FP8_DYNAMIC --max-windows 2 >"$T/stdout" 2>"$T/stderr" ||
    fail 'one more'
[ "$(grep -c 'measuring$' "$T/stderr")" -eq 1 ] || fail 'more than the new one was measured'

# --- recommendations: exact limits, and none
ALL=(--schemes W4A16,W8A16,W3A16,FP8_DYNAMIC --max-windows 2)
expect 0 '' sweep "${ALL[@]}" --max-size "$(cat "$DIR"/W8A16-swage/* | wc -c)"
[ "$(field chosen)" = '"chosen":"W8A16-swage"' ] || fail "at its size: $(field chosen)"
expect 0 '' sweep "${ALL[@]}" --max-size $(($(cat "$DIR"/W8A16-swage/* | wc -c) - 1)) --json
[ "$(field chosen)" != '"chosen":"W8A16-swage"' ] || fail 'a byte too large'
grep -q '"chosen"' "$T/stdout" || fail 'no choice in the object'
expect 1 'no checkpoint keeps the limits; the nearest is W8A16-swage' sweep "${ALL[@]}" --max-kl 0
expect 1 'no checkpoint keeps the limits; the nearest is W3A16-swage' sweep "${ALL[@]}" --max-size 1K \
    --keep-best
[ "$(ls -d "$DIR"/*-swage | wc -l)" -eq 4 ] || fail 'removed though nothing was chosen'

# --- --keep-best removes the others and nothing else; a checkpoint that somebody changed stays
touch "$DIR/mine" "$DIR/W4A16-swage/mine"
expect 2 'W4A16-swage: holds mine' sweep "${ALL[@]}" --max-kl 1e9 --keep-best
[ -f "$DIR/W4A16-swage/model.safetensors" ] || fail 'removed in spite of a file that is not ours'
rm "$DIR/W4A16-swage/mine"
expect 0 '' sweep "${ALL[@]}" --max-kl 1e9 --keep-best
[ "$(cd "$DIR" && echo *)" = 'W3A16-swage W3A16-swage.verify.json mine sweep.html sweep.json' ] ||
    fail "left: $(cd "$DIR" && echo *)"
expect 0 '' "$SWAGE" verify --quiet "$DIR/W3A16-swage" --against "$TOY"

# --- a mixture of experts, calibrated once; a failure leaves the others
rm -rf "$DIR"
MOE=$PWD/tests/golden/arch/qwen3_moe
SWEEP=("$SWAGE" sweep "$MOE" -o "$DIR" --calib "$MOE/reference.safetensors" --samples 2 --seq-len 32
       --text "$MOE/reference.safetensors" --window 32 --allow-fallback --group-size 32)
mkdir -p "$DIR/W8A16-swage.partial"
touch "$DIR/W8A16-swage.partial/mine"
expect 2 'W8A16-swage: *partial' sweep --schemes W8A16,W4A16
grep -q '^W4A16-swage .*%' "$T/stdout" || fail 'the other is not measured'
rm -r "$DIR/W8A16-swage.partial"
expect 0 '' sweep --schemes W8A16,W4A16
grep -q '^W8A16-swage .*%' "$T/stdout" || fail 'not continued'

# --- what is wrong with the command
expect 2 'held-out text: --text FILE' "$SWAGE" sweep "$TOY" -o "$T/x" --schemes W8A16 --method rtn
expect 2 '--keep-best keeps what' sweep --keep-best
expect 2 'give one of them' sweep --schemes W8A16 --scheme W4A16
expect 2 'needs calibration text' "$SWAGE" sweep "$TOY" -o "$T/x" --schemes W8A16 --text "$0"
absent "$T/x"
finish
