#!/bin/bash
# SIGINT and SIGTERM in the middle, a full disk, a file size limit: nothing half-written stays.
. "$(dirname "$0")/lib.bash"
OUT=$T/out
CALIB=$PWD/calib_data/calib.u16

stop_with() { # SIGNAL: begin a long run, stop it when its temporary is there
    "$SWAGE" quantize "$TINY" -o "$OUT" --calib "$CALIB" --samples 64 --quiet 2>"$T/stderr" &
    local pid=$! i
    for i in {1..200}; do
        compgen -G "$OUT.partial-*" >/dev/null && break
        sleep 0.05
    done
    compgen -G "$OUT.partial-*" >/dev/null || fail "the run never began"
    sleep 0.3
    kill "-$1" $pid
    wait $pid
    local have=$?
    [ $have -eq 130 ] || fail "exit $have after SIG$1, want 130"
    [ "$(cat "$T/stderr")" = "swage quantize: interrupted; nothing was written" ] ||
        fail "message: $(cat "$T/stderr")"
    absent "$OUT"
}
stop_with INT
stop_with TERM

# the old output stays whole when a run that would replace it is stopped
mkdir "$OUT" && echo mine >"$OUT/precious"
"$SWAGE" quantize "$TINY" -o "$OUT" --force --calib "$CALIB" --samples 64 --quiet 2>/dev/null &
pid=$!
sleep 0.7
kill -INT $pid
wait $pid
[ "$(ls "$OUT")" = precious ] || fail "an interrupted --force touched the old output"
rm -r "$OUT"
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
