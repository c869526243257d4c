# lib.bash - what the end-to-end scripts share. Source it; it makes $T, a directory of the test's own.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
BUILD=${BUILD:-build/release}
SWAGE=$PWD/$BUILD/swage
TINY=$PWD/calib_data/tiny-llama
TOY=$PWD/tests/golden/arch/llama # two layers, random weights, no tokenizer
T=$(mktemp -d "${TMPDIR:-/tmp}/swage-e2e.XXXXXX") || exit 1
trap 'rm -rf "$T"' EXIT
failures=0
# Each line on stderr counts, so nothing but errors may be there.
unset SWAGE_EXEC
# Nor does what a user has set decide: the order of names, the point in numbers, colours, threads that nproc counts.
export LC_ALL=C
unset NO_COLOR CLICOLOR_FORCE COLUMNS CDPATH OMP_NUM_THREADS OMP_THREAD_LIMIT HF_HUB_CACHE HF_HOME
umask 022
HOLD_SOURCE=$PWD/tests/e2e/hold.c

fail() {
    echo "FAIL ${BASH_SOURCE[-1]##*/}:${BASH_LINENO[-2]}: $*"
    failures=$((failures + 1))
}

# expect CODE TEXT COMMAND... : the exit code, and one line on stderr that holds TEXT (a glob).
# TEXT "" means that stderr is empty. stdout is left in $T/stdout.
expect() {
    local code=$1 text=$2 have line
    shift 2
    "$@" >"$T/stdout" 2>"$T/stderr"
    have=$?
    [ "$have" -eq "$code" ] || fail "exit $have, want $code: $* ($(head -c 300 "$T/stderr"))"
    if [ -z "$text" ]; then
        [ ! -s "$T/stderr" ] || fail "stderr is not empty: $* ($(head -c 300 "$T/stderr"))"
        return
    fi
    [ "$(wc -l <"$T/stderr")" -eq 1 ] || fail "not one line: $* ($(head -c 600 "$T/stderr"))"
    line=$(cat "$T/stderr")
    # shellcheck disable=SC2053
    [[ $line == *$text* ]] || fail "message of $*"$'\n'"  have $line"$'\n'"  want $text"
}

# Nothing by this name, nor a temporary of it.
absent() {
    local left
    left=$(compgen -G "$1*")
    [ -z "$left" ] || fail "left behind: $left"
}

# A copy of a model directory that may be broken: model NAME [SOURCE].
model() {
    rm -rf "${T:?}/$1"
    mkdir "$T/$1"
    cp "${2:-$TOY}"/*.json "${2:-$TOY}"/model*.safetensors "$T/$1/"
    chmod -R u+w "$T/$1"
}

# Programs that several scripts make, which run side by side: one of them at a time, or one would find half of a
# program that another is linking. made_by_one TARGET...
made_by_one() { (flock 9 && make "$@") 9>>build/.e2e-lock; }

# $EXPAND makes a model directory of a recipe, and the recipes are in $RECIPES. Without sources it is there.
use_recipes() {
    [ ! -f Makefile ] || made_by_one -s "$BUILD/tests/tools/expand_recipe" >/dev/null || exit 1
    EXPAND=$PWD/${BUILD:-build/release}/tests/tools/expand_recipe
    RECIPES=$PWD/tests/golden/recipes
}

# Token ids below 128 as .u16, one per printable character of the bundled text: for $TOY.
toy_tokens() {
    tr -cd ' -~' <"$PWD/calib_data/calib.txt" | head -c "$1" | sed 's/./&\x00/g'
}

# n as 8 little-endian bytes.
le64() {
    local n=$1 i
    for i in 1 2 3 4 5 6 7 8; do
        # shellcheck disable=SC2059
        printf "\\x$(printf %02x $((n & 255)))"
        n=$((n >> 8))
    done
}

# A safetensors file: container HEADER DATA_BYTES >FILE.
container() {
    le64 ${#1}
    printf %s "$1"
    head -c "$2" /dev/zero
}

# Where a tensor's data begins in a file: offset_of FILE NAME.
offset_of() {
    local n begin
    n=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    begin=$(head -c $((8 + n)) "$1" | tail -c "$n" | tr '{' '\n' | grep -A1 -F "\"$2\":" | tail -n 1 |
        grep -o '"data_offsets":\[[0-9]*' | head -n 1 | grep -o '[0-9]*$')
    [ -n "$begin" ] || fail "no tensor $2 in $1"
    echo $((8 + n + begin))
}

# Overwrite bytes: poke FILE OFFSET '\x01\x02'.
poke() {
    # shellcheck disable=SC2059
    printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# The processes that a process has started, oldest first; by /proc alone, for there may be no ps.
children_of() {
    cat /proc/[0-9]*/stat 2>/dev/null | sed -E 's/^([0-9]+) .*\) [A-Za-z] ([0-9]+) .*/\1 \2/' |
        awk -v parent="$1" '$2 == parent { print $1 }' | sort -n
}

# hold CALL NAME N COMMAND...: the command in the background, as $pid, until it has made its N-th CALL (open, mkdir,
# rename, pwrite, fflush) on a path that ends in NAME. There it has stopped itself and waits for SIGCONT, or to
# be killed: what a test does to a run that is at work it does at the same moment each time.
hold() {
    local at="$1 $2 $3"
    shift 3
    [ -f "$T/hold.so" ] || ${CC:-cc} -D_GNU_SOURCE -O1 -shared -fPIC "$HOLD_SOURCE" -o "$T/hold.so" || exit 1
    HOLD=$at LD_PRELOAD=$T/hold.so "$@" &
    pid=$!
    until is_held "$pid" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
    is_held "$pid" || fail "ended before it came to $at: $*"
}
is_held() { [[ $(cat "/proc/$1/stat" 2>/dev/null) == *') T '* ]]; }

finish() {
    [ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
    exit 0
}
