#!/bin/bash
# SIGINT and SIGTERM in the middle, a full disk, a file size limit: nothing half-written appears
# under the output's name, and what is finished is there for the next run.
. "$(dirname "$0")/lib.bash"
OUT=$T/out
CALIB=$PWD/calib_data/calib.u16

stop_with() { # SIGNAL BLOCKS: begin a long run, stop it when so many blocks are finished
    "$SWAGE" quantize "$TINY" -o "$OUT" --calib "$CALIB" --samples 16 --seq-len 256 --quiet 2>"$T/stderr" &
    local pid=$! i
    for i in {1..1000}; do
        [ -f "$OUT.partial/journal" ] && [ "$(wc -l <"$OUT.partial/journal")" -gt "$2" ] && break
        sleep 0.02
    done
    [ -f "$OUT.partial/journal" ] || fail "the run never began"
    kill "-$1" $pid
    wait $pid
    local have=$?
    [ $have -eq 130 ] || fail "exit $have after SIG$1, want 130"
    absent "$OUT/"
}
stop_with INT 0
[[ $(cat "$T/stderr") == "swage quantize: interrupted; "* ]] || fail "message: $(cat "$T/stderr")"
rm -rf "$OUT.partial" # a block may have been finished between the look and the signal
stop_with TERM 1
[[ $(cat "$T/stderr") == "swage quantize: interrupted; "?" of 6 blocks are in $OUT.partial: the same "* ]] ||
    fail "message: $(cat "$T/stderr")"
stop_with INT $(wc -l <"$OUT.partial/journal") # and again, in a run that continues
rm -r "$OUT.partial"
# the old output stays whole when a run that would replace it is stopped
expect 0 '' "$SWAGE" quantize "$TOY" -o "$OUT" --method rtn --quiet
cp -r "$OUT" "$T/before"
"$SWAGE" quantize "$TINY" -o "$OUT" --force --calib "$CALIB" --samples 16 --seq-len 256 --quiet 2>/dev/null &
pid=$!
until [ -d "$OUT.partial" ] || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
kill -INT $pid
wait $pid
have=$?
[ $have -eq 130 ] || fail "exit $have of a --force that was interrupted, want 130"
diff -r "$T/before" "$OUT" || fail "an interrupted --force touched the old output"
rm -rf "$OUT" "$OUT.partial"
absent "$OUT"

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
