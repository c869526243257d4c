#!/bin/bash
# SIGINT and SIGTERM in the middle, a full disk, a file size limit: nothing half-written appears
# under the output's name, and what is finished is there for the next run.
. "$(dirname "$0")/lib.bash"
OUT=$T/out
CALIB=$PWD/calib_data/calib.u16
toy_tokens 512 >"$T/some.u16"

stop() { # SIGNAL: the run that is held goes on, and finds that it was asked to stop
    kill "-$1" $pid
    kill -CONT $pid
    wait $pid
    local have=$?
    [ $have -eq 130 ] || fail "exit $have after SIG$1, want 130"
}
Q=("$SWAGE" quantize "$TINY" -o "$OUT" --calib "$CALIB" --samples 2 --seq-len 128 --quiet)

hold rename /journal 1 "${Q[@]}" >/dev/null 2>"$T/stderr" # before the first block
stop INT
absent "$OUT/"
[[ $(cat "$T/stderr") == "swage quantize: interrupted; "* ]] || fail "message: $(cat "$T/stderr")"
for signal in TERM INT; do # and again, in a run that continues
    hold pwrite /journal 1 "${Q[@]}" >/dev/null 2>"$T/stderr"
    stop $signal
    absent "$OUT/"
    [[ $(cat "$T/stderr") == "swage quantize: interrupted; "?" of 6 blocks are in $OUT.partial: the same "* ]] ||
        fail "message: $(cat "$T/stderr")"
done
rm -r "$OUT.partial"
# the old output stays whole when a run that would replace it is stopped
expect 0 '' "$SWAGE" quantize "$TOY" -o "$OUT" --method rtn --quiet
cp -r "$OUT" "$T/before"
hold mkdir .partial 1 "${Q[@]}" --force >/dev/null 2>&1
stop INT
diff -r "$T/before" "$OUT" || fail "an interrupted --force touched the old output"
rm -rf "$OUT" "$OUT.partial"
absent "$OUT"

# of several outputs those that are complete are counted, by sweep as well
MANY=("$TOY" -o "$T/many" --method rtn --quiet)
hold mkdir W8A16-swage.partial 1 "$SWAGE" quantize "${MANY[@]}" --scheme W4A16,W8A16 >/dev/null 2>"$T/stderr"
stop INT
[[ $(cat "$T/stderr") == 'swage quantize: interrupted; 1 of 2 outputs are complete: the same command '* ]] ||
    fail "message: $(cat "$T/stderr")"
hold mkdir W8A16-swage.partial 1 "$SWAGE" sweep "${MANY[@]}" --schemes W4A16,W8A16 --text "$T/some.u16" \
    >/dev/null 2>"$T/stderr"
stop INT
[[ $(cat "$T/stderr") == 'swage sweep: interrupted; 1 of 2 outputs are complete: the same command '* ]] ||
    fail "message: $(cat "$T/stderr")"
rm -r "$T/many"

# a limit on file size stands for a disk that fills while it is written
limited() { (ulimit -f 200 && exec "$@"); }
expect 5 "$OUT*" limited "$SWAGE" quantize "$TOY" -o "$OUT" --method rtn --quiet
absent "$OUT"

# a disk that is too small is found before the work
if [ "$(id -u)" -eq 0 ] && mkdir "$T/disk" && mount -t tmpfs -o size=300k none "$T/disk" 2>/dev/null
then
    trap 'umount "$T/disk"; rm -rf "$T"' EXIT
    expect 5 'disk' "$SWAGE" quantize "$TOY" -o "$T/disk/out" --method rtn --quiet
    absent "$T/disk/out"
else
    echo 'no tmpfs here: the small disk was not tried'
fi
finish
