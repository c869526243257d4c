#!/usr/bin/env bash
# How long commands talk: one line drawn again on a terminal, plain lines in a log, one JSON object a
# line with --progress json, nothing where nothing is asked for; colours; what comes next.
. "$(dirname "$0")/lib.bash"
unset NO_COLOR CLICOLOR_FORCE COLUMNS
cp calib_data/calib.u16 "$T/calib.u16"
quantize=(quantize "$TINY" --calib "$T/calib.u16" --samples 2 --seq-len 128 --ignore mlp)

# Steps are shown at most six times a second; by a clock that runs away, each is.
${CC:-cc} -D_GNU_SOURCE -O1 -shared -fPIC tests/e2e/ticks.c -o "$T/ticks.so" || fail 'the compiler'
each_step=(env LD_PRELOAD="$T/ticks.so")

# lines FILE WHAT: every line is an object of the documented kind; the first and the last are begin
# and end; steps never go back, and their times are numbers.
lines() {
    awk -v what="$2" '
    function bad(text) { print "FAIL " what ":" NR ": " text ": " $0; failed = 1; exit }
    function field(key,    at) {
        at = index($0, "\"" key "\":")
        if (!at) bad("no " key)
        at = substr($0, at + length(key) + 3)
        if (at ~ /^"/) { sub(/^"/, "", at); sub(/".*/, "", at) } else sub(/[,}].*/, "", at)
        return at
    }
    { if ($0 !~ /^\{"event":"(begin|step|note|error|end)",.*\}$/) bad("not an event") }
    NR == 1 { if (field("event") != "begin" || field("schema") != "swage.progress/1") bad("first") }
    ended { bad("behind the end") }
    field("event") == "step" {
        n_steps++
        step = field("step"); done = field("done"); total = field("total")
        if (done !~ /^[0-9]+$/ || total !~ /^([0-9]+|null)$/) bad("counts")
        if (field("elapsed_s") !~ /^[0-9]+\.[0-9]+$/ || field("eta_s") !~ /^([0-9]+\.[0-9]+|null)$/) bad("times")
        if (field("unit") !~ /^[a-z]+$/ || field("tensor") == "") bad("unit or tensor")
        if (total != "null" && done + 0 > total + 0) bad("more than all")
        if (step == last && done + 0 < last_done) bad("back")
        last = step; last_done = done + 0
    }
    field("event") == "end" { ended = 1 }
    END { if (!failed && (!ended || !n_steps)) { print "FAIL " what ": no end or no step"; failed = 1 } exit failed }' "$1" ||
        failures=$((failures + 1))
}

# JSON, of every command that takes long; the result on stdout stays what it is
"${each_step[@]}" "$SWAGE" "${quantize[@]}" -o "$T/out" --progress json --json >"$T/result" 2>"$T/events" || fail "quantize: $(tail -n 1 "$T/events")"
lines "$T/events" quantize
[ "$(head -c 1 "$T/result")" = '{' ] && grep -q '"swage.quantize/1"' "$T/result" || fail 'the result is no object any more'
grep -q '"step":"quantize","done":6,"total":6,"unit":"blocks"' "$T/events" || fail 'no last block'
grep -q '"tensor":"model.layers.[0-5].*_proj"' "$T/events" || fail 'no linear is named'
grep -q '"step":"tensors"' "$T/events" || fail 'reading back is silent'
tail -n 1 "$T/events" | grep -q '"event":"end","exit":0,' || fail "end: $(tail -n 1 "$T/events")"
prompt=$(tr -cd 'a-z ' <calib_data/calib.txt | head -c 1500)
for command in "calibrate $TINY --calib $T/calib.u16 --samples 2 --seq-len 128 -o $T/stats" \
    "convert $T/out --to bf16 -o $T/dense" "convert $TINY --to gguf --type Q8_0 -o $T/x.gguf" \
    "verify $T/out --against $TINY --text calib_data/eval.u16 --window 128 --max-windows 3" \
    "report $T/out -o $T/page.html" "inspect $TINY --values"; do
    # shellcheck disable=SC2086
    "$SWAGE" $command --progress json >"$T/stdout" 2>"$T/events" || fail "$command: $(tail -n 1 "$T/events")"
    lines "$T/events" "${command%% *}"
done
"$SWAGE" generate "$TINY" -p "$prompt" -n 2 --progress json >"$T/stdout" 2>"$T/events" || fail generate
lines "$T/events" generate
grep -q '"step":"prompt","done":6,"total":6,"unit":"blocks"' "$T/events" || fail 'a long prompt is silent'

# a failure is an event, too
"$SWAGE" "${quantize[@]}" -o "$T/out" --progress json >"$T/stdout" 2>"$T/events"
[ $? -eq 2 ] || fail 'exit code'
grep -q '{"event":"error","command":"quantize","code":"usage","exit":2,"message":".*exists.*"}' "$T/events" || fail "$(cat "$T/events")"
tail -n 1 "$T/events" | grep -q '"event":"end","exit":2,' || fail 'no end after an error'

# none and --quiet; plain lines come every ten seconds, so of a short run there are none
expect 0 '' "$SWAGE" "${quantize[@]}" -o "$T/out1" --progress none
expect 0 '' "$SWAGE" "${quantize[@]}" -o "$T/out2" --progress json -q
SECONDS=0
"$SWAGE" "${quantize[@]}" -o "$T/out3" --progress plain >"$T/stdout" 2>"$T/plain" || fail "quantize: $(cat "$T/plain")"
# and the last says how long it took; a busy machine makes a long run of it
[ "$(wc -l <"$T/plain")" -le $((SECONDS < 10 ? 0 : SECONDS / 10 + 1)) ] || fail "$SECONDS s, but: $(cat "$T/plain")"
expect 2 "--progress does not know 'jsno'; did you mean json?" "$SWAGE" "${quantize[@]}" -o "$T/out4" --progress jsno

# the bytes do not depend on how a run is watched, nor do manifest and card
for other in out1 out2 out3; do
    diff -r "$T/out" "$T/$other" >"$T/differs" || fail "$other: $(head -n 2 "$T/differs")"
done

# what comes next: commands that run as they are printed, but for FILE
expect 0 '' "$SWAGE" quantize "$TOY" --method rtn -o "$T/it's here" --progress none
grep -q '^next  *swage verify ' "$T/stdout" || fail "no next step: $(tail -n 2 "$T/stdout")"
next=$(sed -n 's/^next  *//p' "$T/stdout" | sed "s|FILE|$T/toy.u16|")
toy_tokens 2048 >"$T/toy.u16"
PATH=$(dirname "$SWAGE"):$PATH bash -c "$next --window 32 -q" >"$T/stdout" 2>"$T/stderr" || fail "next: $next: $(head -c 300 "$T/stderr")"
expect 0 '' "$SWAGE" quantize "$TOY" --method rtn -o "$T/quiet" -q
! grep -q ^next "$T/stdout" || fail 'next steps under --quiet'

# errors are coloured where that is asked for
"$SWAGE" inspect "$T/none" --color always 2>"$T/stderr"
grep -q $'^\x1b\[31mswage inspect:\x1b\[0m ' "$T/stderr" || fail "colour: $(cat -v "$T/stderr")"
"$SWAGE" inspect "$T/none" 2>"$T/stderr"
! grep -q $'\x1b' "$T/stderr" || fail 'colours in a file'

# on a terminal of 60 columns: drawn again on one line, which fits, and wiped
command -v script >/dev/null || { [ "$failures" -gt 0 ] || { echo 'no script(1): terminals were not tried'; exit 77; }; finish; }
on_terminal() { # COLUMNS COMMAND...: what a terminal gets
    local columns=$1
    shift
    TERM=${TERM_TYPE:-xterm} script -qec "stty cols $columns; $(printf '%q ' "$@")" /dev/null </dev/null 2>&1
}
on_terminal 60 "${each_step[@]}" "$SWAGE" "${quantize[@]}" -o "$T/tty" >"$T/screen"
drawn=$(tr '\r' '\n' <"$T/screen" | grep -a $'^\x1b\\[K[a-z]' | sed $'s/\x1b\\[[0-9;]*[mK]//g')
[ "$(grep -c '^quantize \[[#.]*\] [0-9]/6 blocks' <<<"$drawn")" -ge 6 ] || fail "bar: $(head -n 3 <<<"$drawn")"
awk 'length > 59 { bad = 1; print } END { exit bad }' <<<"$drawn" || fail 'a bar is wider than the terminal'
grep -q 's left' <<<"$drawn" || fail 'no time that is left'
grep -q $'\x1b\\[32m#' "$T/screen" || fail 'the bar has no colour'
! sed $'s/.*\x1b\\[K//' "$T/screen" | grep -q ' blocks' || fail 'the bar leaves lines'
NO_COLOR=1 on_terminal 60 "$SWAGE" "${quantize[@]}" -o "$T/tty1" >"$T/screen"
grep -q '6/6 blocks' "$T/screen" || fail 'no bar without colours'
! grep -q $'\x1b\\[[0-9;]*m' "$T/screen" || fail 'NO_COLOR is not obeyed'
TERM_TYPE=dumb on_terminal 60 "$SWAGE" "${quantize[@]}" -o "$T/tty2" >"$T/screen"
! grep -q $'\x1b' "$T/screen" || fail 'a dumb terminal gets escape sequences'
on_terminal 60 "$SWAGE" "${quantize[@]}" -o "$T/tty3" --progress plain >"$T/screen"
! grep -q $'\x1b\\[K' "$T/screen" || fail '--progress plain draws'

# tables fit: names are cut in the middle, numbers are whole; in a file nothing is cut
on_terminal 48 "$SWAGE" inspect "$TINY" --tensors | tr -d '\r' >"$T/narrow"
grep -Eq '^model\.[^ ]*\.\.\.[^ ]*weight  BF16 \[256, 768\]$' "$T/narrow" || fail "narrow: $(grep -m 2 weight "$T/narrow")"
awk '/weight/ && length > 48 { bad = 1 } END { exit bad }' "$T/narrow" || fail 'a table is wider than the terminal'
expect 0 '' "$SWAGE" inspect "$TINY" --tensors
! grep -q '\.\.\.' "$T/stdout" || fail 'names are cut in a file'
expect 0 '' env COLUMNS=48 "$SWAGE" inspect "$TINY" --tensors
diff <(grep weight "$T/narrow") <(grep weight "$T/stdout") >/dev/null || fail 'COLUMNS is not the width'

# so do those of verify and bench
for command in "verify $T/out --against $TINY --speed --batch 1 --prompt 8 --steps 1 --rounds 6" \
    "verify $TINY --text calib_data/eval.u16 --window 128 --max-windows 2" "bench --shape 64x64 --m 1 --seconds 0"; do
    # shellcheck disable=SC2086
    expect 0 '' env COLUMNS=80 "$SWAGE" $command -q
    awk 'length > 80 { bad = 1; print } END { exit bad }' "$T/stdout" || fail "${command%% *}: wider than the terminal"
done
expect 0 '' env COLUMNS=60 "$SWAGE" verify "$T/out" --against "$TINY" -q
grep -Eq '^model[^ ]*\.\.\.[^ ]*proj +[0-9.]+% ' "$T/stdout" || fail "verify is not narrow: $(grep -m 1 proj "$T/stdout")"
finish
