#!/usr/bin/env bash
# Ranks that mpirun starts: what arrives, one message and the documented exit code when one fails or
# stalls, what is said where the MPI half is missing, and the bytes of a checkpoint.
. "$(dirname "$0")/lib.bash"
LIBRARY=$PWD/${BUILD:-build/release}/libswage_mpi.so
command -v mpirun >/dev/null || { echo 'skipped: there is no mpirun; make deps-mpi installs it'; exit 77; }
[ -f "$LIBRARY" ] || { echo 'skipped: there is no libswage_mpi.so; make builds it where mpicc is'; exit 77; }
mpirun --version | grep -q 'Open MPI' || { echo 'skipped: this mpirun is not of Open MPI'; exit 77; }
export SWAGE_MPI_LIBRARY=$LIBRARY OMP_NUM_THREADS=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
made_by_one -s "${BUILD:-build/release}/tests/tools/team_ranks" >/dev/null || exit 1
TALK=$PWD/${BUILD:-build/release}/tests/tools/team_ranks

ranks() {
    local n=$1
    shift
    timeout 240 mpirun --oversubscribe --bind-to none -n "$n" "$@"
}
ranks 2 true 2>"$T/stderr" || { echo "skipped: mpirun does not run here: $(head -n 3 "$T/stderr" | tr '\n' ' ')"; exit 77; }

# mpirun has words of its own about a job that failed; of ours there is one line.
says() {
    local code=$1 text=$2 have
    shift 2
    "$@" >"$T/stdout" 2>"$T/stderr"
    have=$?
    [ "$have" -eq "$code" ] || fail "exit $have, want $code: $* ($(head -c 600 "$T/stderr"))"
    [ -z "$text" ] || [ "$(grep -c -F -e "$text" "$T/stderr" "$T/stdout" | awk -F: '{n += $2} END {print n}')" -eq 1 ] ||
        fail "not one line with '$text': $* ($(head -c 600 "$T/stderr"))"
}

for n in 2 3; do
    says 0 "rank 0 of $n, $n on its host: well" ranks $n "$TALK" circle
    says 7 'rank 1: the device fell off the bus' ranks $n "$TALK" agree
    says 2 'rank 1 has another config.json than rank 0' ranks $n "$TALK" differ
    says 6 'rank 1: no memory for a Hessian' ranks $n "$TALK" fail
    says 5 'rank 1 of' env SWAGE_RANK_WAIT=2 mpirun --oversubscribe -n $n "$TALK" stall
    says 70 'rank 1 sends more bytes than the 4 that rank 0 expects' ranks $n "$TALK" mix_up
done

# Without the library, and with one of another build.
none() { env SWAGE_MPI_LIBRARY="$T/none.so" mpirun --oversubscribe -n 2 "$SWAGE" quantize "$TOY" -o "$T/out" --method rtn; }
says 4 "several ranks were started, and $T/none.so: no such file" none
echo 'const char sw_mpi_abi[] = "another"; void sw_mpi_join(void) {}' >"$T/none.c"
${CC:-cc} -shared -fPIC -o "$T/none.so" "$T/none.c" || fail 'the compiler'
says 4 'libswage_mpi.so was built from other sources than this program' none
says 2 '--ranks 3: the launcher has started 2 already' ranks 2 "$SWAGE" quantize "$TOY" -o "$T/out" --method rtn --ranks 3
absent "$T/out"

# The bytes of one rank, from several; and after ranks that were killed, of which mpirun tells.
press() {
    "$@" "$SWAGE" quantize "$TINY" -o "$T/out" --calib "$PWD/calib_data/calib.u16" --samples 2 --seq-len 128 --ignore mlp --quiet
}
expect 0 '' press env
mv "$T/out" "$T/want"
for n in 2 3; do
    says 0 '' press ranks $n
    diff -r "$T/want" "$T/out" >"$T/diff" || fail "other bytes of $n ranks: $(head -n 3 "$T/diff")"
    rm -rf "$T/out"
done
n_killed=0
for n in {1..20}; do
    [ $n_killed -lt 3 ] || break
    rm -rf "$T/out" # it was finished before
    press ranks 2 >/dev/null 2>"$T/stderr" &
    run=$!
    until [ "$(cat "$T/out.partial/journal" 2>/dev/null | wc -l)" -gt $((n_killed + 1)) ] || ! kill -0 $run 2>/dev/null; do
        sleep 0.01
    done
    # a shell, timeout, mpirun, its ranks
    mapfile -t started < <(children_of "$(children_of "$(children_of $run)")")
    [ ${#started[@]} -lt 2 ] || kill -KILL "${started[n % 2]}" 2>/dev/null
    wait $run
    have=$?
    [ $have -eq 0 ] || [ $have -eq 137 ] || fail "exit $have of ranks that were killed: $(head -c 300 "$T/stderr")"
    [ $have -eq 0 ] || n_killed=$((n_killed + 1))
done
[ $n_killed -eq 3 ] || fail "only $n_killed runs were killed"
[ -d "$T/out" ] || says 0 '' press ranks 3
diff -r "$T/want" "$T/out" >"$T/diff" || fail "other bytes after kills: $(head -n 3 "$T/diff")"
finish
