#!/bin/bash
# A share of the damaged checkpoints that the judge must find, and of the sound ones that it must
# pass; `make judge-corpus` tries all of them.
. "$(dirname "$0")/lib.bash"
tests/bench/judge_corpus.sh "$T/share.csv" share >"$T/said" 2>&1 || fail "$(cat "$T/said")"
[ "$(wc -l <"$T/share.csv")" -ge 8 ] || fail "too few damages: $(cat "$T/said")"
exit "$((failures > 0))"
