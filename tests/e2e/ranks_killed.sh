#!/usr/bin/env bash
# A rank is killed at a random moment, ten times, any of three: the run ends with one line and exit 5
# (137 where rank 0 was it), nothing unfinished has the output's name, no process stays behind, and the
# same command, with another number of ranks, continues to the bytes of a run that nobody disturbed.
. "$(dirname "$0")/lib.bash"
CALIB=$PWD/calib_data/calib.u16
OUT=$T/out
seed=${SEED:-$$}
RANDOM=$seed

RUN=("$SWAGE" quantize "$TINY" --calib "$CALIB" --samples 2 --seq-len 128 --ignore mlp --quiet)
press() { exec "${RUN[@]}" -o "$OUT" "$@"; }
expect 0 '' "${RUN[@]}" -o "$T/want"

finish_run() {
    [ -d "$OUT" ] || expect 0 '' press_in_shell --ranks $((1 + RANDOM % 3))
    diff -r "$T/want" "$OUT" >"$T/diff" || fail "other bytes after kills: $(head -n 3 "$T/diff") (SEED=$seed)"
    rm -rf "$OUT"
}
press_in_shell() { (press "$@"); }

# The moments lie all over the time that it takes here.
now_ms() { date +%s%3N; }
begin_ms=$(now_ms)
expect 0 '' press_in_shell --ranks 3
whole_ms=$(($(now_ms) - begin_ms))
finish_run

n_killed=0 n_of_rank_0=0
for _ in {1..200}; do
    [ $n_killed -lt 10 ] || break
    begin_ms=$(now_ms)
    press --ranks 3 2>"$T/stderr" >/dev/null &
    first=$!
    after_ms=$((20 + RANDOM % whole_ms))
    sleep "$(printf '%d.%03d' $((after_ms / 1000)) $((after_ms % 1000)))"
    mapfile -t others < <(children_of $first)
    victims=($first "${others[@]}")
    victim=${victims[RANDOM % ${#victims[@]}]}
    kill -KILL "$victim" 2>/dev/null
    wait $first 2>/dev/null
    have=$?
    for p in "${others[@]}"; do # one that has just been killed may still be on its way out
        for _ in {1..1000}; do [ -d "/proc/$p" ] || break; sleep 0.05; done
        [ ! -d "/proc/$p" ] || fail "process $p stays behind (SEED=$seed)"
    done
    if [ $have -eq 0 ]; then # it was finished before: it takes less than it did
        whole_ms=$(($(now_ms) - begin_ms))
        finish_run
        continue
    fi
    n_killed=$((n_killed + 1))
    if [ -d "$OUT" ]; then finish_run; fi # killed after it was complete, else this finds it out
    if [ "$victim" -eq $first ]; then
        n_of_rank_0=$((n_of_rank_0 + 1))
        [ $have -eq 137 ] || fail "exit $have of a rank 0 that was killed (SEED=$seed)"
        continue
    fi
    [ $have -eq 5 ] || fail "exit $have, want 5: $(cat "$T/stderr") (SEED=$seed)"
    [ "$(wc -l <"$T/stderr")" -eq 1 ] || fail "not one line: $(cat "$T/stderr") (SEED=$seed)"
    [[ $(cat "$T/stderr") == 'swage quantize: '*'rank '?' of 3 has ended without a word'* ]] ||
        fail "message: $(cat "$T/stderr") (SEED=$seed)"
done
[ $n_killed -ge 10 ] || fail "only $n_killed runs were killed (SEED=$seed)"
finish_run
echo "$n_killed killed, $n_of_rank_0 of them rank 0"
finish
