# ranks.bash - what the scripts of several ranks share. Source it after lib.bash.

same() {
    diff -r "$1" "$2" >/dev/null || fail "$1 and $2 differ: $(diff -rq "$1" "$2" | head -n 3)"
}

# by_ranks "RANKS ..." NAME MODEL OPTION... : one rank, then so many, with the options of DEVICE
DEVICE=()
by_ranks() {
    local ranks=$1 name=$2 model=$3 n
    shift 3
    expect 0 '' "$SWAGE" quantize "$model" -o "$T/$name-1" --threads 2 --quiet "${DEVICE[@]}" "$@"
    for n in $ranks; do
        expect 0 '' "$SWAGE" quantize "$model" -o "$T/$name-$n" --ranks $n --threads 1 --quiet "${DEVICE[@]}" "$@"
        same "$T/$name-1" "$T/$name-$n"
        rm -rf "${T:?}/$name-$n"
    done
}

# A run of three ranks of which one was killed: exit 5 and one line, in $T/stderr, of COMMAND if it is said: died CODE [COMMAND].
died() {
    [ "$1" -eq 5 ] || fail "exit $1, want 5: $(head -c 300 "$T/stderr")"
    [[ $(cat "$T/stderr") == "swage ${2:+$2: }"*'rank '?' of 3 has ended without a word'* ]] ||
        fail "message: $(cat "$T/stderr")"
    [ "$(wc -l <"$T/stderr")" -eq 1 ] || fail "not one line: $(cat "$T/stderr")"
}

# Two ranks of a launcher, which may be given different commands: "${one[@]}" and "${other[@]}".
two() { timeout 120 mpirun --oversubscribe --bind-to none -n 1 "${one[@]}" : -n 1 "${other[@]}"; }

# Does a launcher work here? If so, $T/twin is the toy with other last bytes.
launches() {
    export SWAGE_MPI_LIBRARY=$PWD/${BUILD:-build/release}/libswage_mpi.so OMP_NUM_THREADS=1
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    one=(true)
    other=(true)
    command -v mpirun >/dev/null && [ -f "$SWAGE_MPI_LIBRARY" ] && two >/dev/null 2>&1 || return 1
    model twin
    poke "$T/twin/model.safetensors" $(($(stat -c %s "$T/twin/model.safetensors") - 2)) '\x11\x22'
}

# The two are refused, since this is another at the second, and make no $T/out: differs WHAT.
differs() {
    two >"$T/stdout" 2>"$T/stderr" && fail "not refused: $1"
    grep -q -F "rank 1 has another $1 than rank 0" "$T/stderr" ||
        fail "no word of $1: $(head -c 600 "$T/stderr")"
    absent "$T/out"
}
