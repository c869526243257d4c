#!/bin/bash
# The quality of every scheme on the bundled model is what it was: see tests/bench/ledger.sh.
. "$(dirname "$0")/lib.bash"

head -c 2048 calib_data/eval.u16 >"$T/eval.u16"
SWAGE=$SWAGE bash tests/bench/ledger.sh check tests/golden/ledger-tiny.csv calib_data/tiny-llama \
    calib_data/calib.u16 8 256 eval="$T/eval.u16" >"$T/stdout" 2>&1 || {
    sed 's/^/    /' "$T/stdout"
    fail 'the ledger'
}
# a figure that got worse is seen, on however little text
head -c 256 calib_data/eval.u16 >"$T/little.u16"
sed -n '1,3p;/^W4A16,rtn/s/,0\./,0.000/p' tests/golden/ledger-tiny.csv >"$T/better.csv"
bash tests/bench/ledger.sh check "$T/better.csv" calib_data/tiny-llama calib_data/calib.u16 1 128 \
    eval="$T/little.u16" >"$T/stdout" 2>&1 && fail 'a worse figure went unseen'
grep -q 'recorded' "$T/stdout" || fail 'no reason'
finish
