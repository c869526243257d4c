#!/bin/bash
# The archive for a machine with a card, without a card: on_card.sh tells what passed, failed, did not end and was
# skipped, of programs that are made up; all that pending.txt and sanitize.sh name is there; and bundle.sh packs
# what runs where nothing of the checkout is, or says what is missing.
. "$(dirname "$0")/lib.bash"
ON_CARD=$PWD/tests/gpu/on_card.sh
fake() { # NAME LINES...: a program that is $T/built/tests/gpu/NAME
    mkdir -p "$T/built/tests/gpu" "$T/built/tests/tools"
    { echo '#!/bin/bash'; printf '%s\n' "${@:2}"; } >"$T/built/tests/gpu/$1"
    chmod +x "$T/built/tests/gpu/$1"
}
on_card() { # CODE ARGUMENT...: what it prints is in $T/lines
    local code=$1 have
    shift
    BUILD=$T/built LOGS=$T/logs bash "$ON_CARD" "$@" >"$T/lines" 2>&1
    have=$?
    [ $have -eq "$code" ] || fail "exit $have, want $code: $* ($(head -c 600 "$T/lines"))"
}
line() { grep -qE "^$1\$" "$T/lines" || fail "no line '$1' in $(cat "$T/lines")"; }

fake test_good 'echo "[       OK ] one"; echo "[       OK ] two"'
fake test_skip 'echo "skipped: no GPU"; exit 77'
on_card 0 tests
line '  test test_good: passed, 2 ok, [0-9]+ s'
line '  test test_skip: skipped: no GPU, 0 ok, [0-9]+ s'
line '1 passed, 0 failed, 0 not done, 1 skipped'
on_card 77 tests test_skip
fake test_bad 'echo "[       OK ] one"; echo "[  ERROR   ] --- 1 != 2"; echo "[  FAILED  ] two"; exit 1'
fake test_crash 'echo "[ RUN      ] deep"; kill -SEGV $$'
fake test_hang 'echo "[       OK ] one"; echo $$ >"'"$T"'/hangs"; exec sleep 60'
# a limit that what hangs meets as soon as it hangs, and nothing else however busy the machine is
mkdir "$T/bin"
cat >"$T/bin/timeout" <<FAKE
#!/bin/bash
shift 3
"\$@" &
case \$* in
    *test_hang*) until [ -s "$T/hangs" ]; do sleep 0.01; done
        kill \$! "\$(cat "$T/hangs")"; wait \$!; exit 124 ;;
esac
wait \$!
FAKE
chmod +x "$T/bin/timeout"
PATH=$T/bin:$PATH on_card 1 tests -j 4 -t 2
line '  test test_bad: FAILED, exit 1, 1 ok, [0-9]+ s'
line '      \[  ERROR   \] --- 1 != 2'
line '  test test_crash: FAILED, exit 139, 0 ok, [0-9]+ s'
line '      \[ RUN      \] deep'
line '  test test_hang: NOT DONE in 2 s, 1 ok, [0-9]+ s'
line '1 passed, 2 failed, 1 not done, 1 skipped'
on_card 1 tests test_none
on_card 2 tests -t soon
on_card 2 nothing
grep -q 'on_card.sh tests' "$T/lines" || fail "no help: $(cat "$T/lines")"

# a list: commands with a filter, with a variable, alone; what cannot be read is a failure
fake test_filter '[ "$1" = only ] && [ "$SOME" = thing ] && echo "[       OK ] only"'
fake bench_x 'echo "x 12 us"'
printf '%s\n' '# why' 'SOME=thing test test_filter only | new' 'alone bench x 1 | timed' >"$T/list"
PENDING=$T/list on_card 0 pending
line '  SOME=thing test test_filter only: passed, 1 ok, [0-9]+ s'
line '    x 12 us'
[ "$(tail -n 1 "$T/lines")" = '2 passed, 0 failed, 0 not done, 0 skipped' ] || fail "count of $(cat "$T/lines")"
echo '# all has run' >"$T/none"
PENDING=$T/none on_card 0 pending
line 'nothing is pending'
echo 'teste test_good | a slip' >>"$T/list"
PENDING=$T/list on_card 1 pending
PENDING=$T/list on_card 0 pending -l
line 'alone bench x 1 \| timed'

# what is named is there
has_test() { grep -qE "\b$2\b" "tests/gpu/$1.c" tests/golden/*/README.md 2>/dev/null || [ -d "tests/golden/arch/$2" ] || [ -d "tests/golden/recipes/$2" ]; }
LIST=1 bash tests/gpu/sanitize.sh >"$T/checks" || fail "sanitize.sh: $(cat "$T/checks")"
[ "$(wc -l <"$T/checks")" -gt 100 ] || fail "few checks: $(wc -l <"$T/checks")"
while read -r _ _ program filter _; do
    [ -f "tests/gpu/$program.c" ] || fail "sanitize.sh: no $program"
    [ -z "$filter" ] || has_test "$program" "$filter" || fail "sanitize.sh: $program has no test $filter"
done <"$T/checks"
n=0
while IFS= read -r command; do
    n=$((n + 1))
    case $command in
        sanitize\ *) eval "words=($command)"
            ONLY=${words[2]} LIST=1 bash tests/gpu/sanitize.sh "${words[1]}" >/dev/null || fail "pending.txt: $command" ;;
        *test\ *) read -r program filter <<<"${command##*test }"
            [ -f "tests/gpu/$program.c" ] || fail "pending.txt: no $program"
            [ -z "$filter" ] || has_test "$program" "$filter" || fail "pending.txt: $program has no test $filter" ;;
        *script\ *) read -r path _ <<<"${command##*script }"
            [ -f "$path" ] || fail "pending.txt: no $path" ;;
        *bench\ *) ;;
        *) fail "pending.txt: $command" ;;
    esac
done < <(grep -v '^#' tests/gpu/pending.txt | sed 's/ *|.*//')
[ $n -gt 0 ] || [ -f tests/gpu/pending.txt ] || fail 'no list'

# what a sanitizer says is told from what went wrong with the sanitizer, which no check is passed by
fake test_engine_ops 'exit 0'
cat >"$T/bin/sanitizer" <<'FAKE'
#!/bin/bash
[ "$1" != --version ] || { echo 'Version 0'; exit; }
printf '%b\n' "$SAID"
exit "$CODE"
FAKE
chmod +x "$T/bin/sanitizer"
sanitized() { # CODE OF THE TOOL, WHAT IT PRINTS, CODE OF THE CHECK, WORDS ON IT
    CHECKED=$T/built SANITIZER=$T/bin/sanitizer CODE=$1 SAID=$2 on_card "$3" sanitize racecheck ' test_router$'
    line "  racecheck built test_router: $4"
}
ok='[       OK ] one' bad='[  FAILED  ] one'
sanitized 0 "$ok" 0 clean
sanitized 0 none 1 'REPORTS: no such test'
sanitized 9 "========= Error: Race in swk\n========= SUMMARY: 1\n$ok" 1 'REPORTS: ========= SUMMARY: 1'
sanitized 9 "========= SUMMARY: 1\n$ok" 0 'clean, but for kernels of libraries'
sanitized 9 "========= SUMMARY: 1\n$bad" 1 'REPORTS: ========= SUMMARY: 1'
sanitized 9 "========= Internal Sanitizer Error: x\n========= SUMMARY: 1\n$bad" 124 'the tool failed'
sanitized 1 '========= Internal Sanitizer Error: x' 124 'the tool failed'
sanitized 9 "========= Internal Sanitizer Error: x\n========= Error: Race in swk" 1 'REPORTS: '
rm "$T/built/tests/gpu/test_engine_ops"

# no object is compiled before the packages are there whose headers it needs
if [ -f Makefile ]; then
    make -pn gpu-bundle 2>/dev/null | grep -E '^build/[^ ]*%\.o: %\.c' >"$T/rules"
    [ -s "$T/rules" ] || fail 'no rule compiles an object'
    ! grep -v ' | build/\.deps$' "$T/rules" || fail 'objects that do not wait for the packages'
fi

# packed, unpacked elsewhere, and run there
rm -f "$T/built/tests/gpu"/test_{bad,crash,hang,filter}
cp "$SWAGE" "$T/built/swage"
: >"$T/built/libswage_cuda.so"
{ grep -v ' libcmocka\|^#\|path calib_data\|path tests/golden' tests/make/bundle.txt; echo 'path calib_data/tiny-llama'; } >"$T/contents"
pack() { # CODE ARCHIVE [CONFIG]
    CONTENTS=$T/contents TMPDIR=$T bash tests/make/bundle.sh "${3:-release}" "$T/built" "$2" >"$T/lines" 2>&1
    [ $? -eq "$1" ] || fail "bundle.sh $2: want $1 ($(cat "$T/lines"))"
}
pack 0 "$T/out/one.tar"
line ".*/one.tar: [0-9.]+ MiB, unpacked [0-9.]+ MiB"
pack 0 "$T/out/two.tar.gz" checked
mkdir "$T/else"
for archive in one.tar two.tar.gz; do tar -xf "$T/out/$archive" -C "$T/else" || fail "tar: $archive"; done
[ "$(ls "$T/else")" = swage-gpu ] || fail "more than one folder: $(ls "$T/else")"
[ -x "$T/else/swage-gpu/build/checked/tests/gpu/test_good" ] || fail 'the second archive is not in the places of the first'
(cd / && env -u BUILD "$T/else/swage-gpu/run.sh" tests) >"$T/lines" 2>&1 || fail "run.sh: $(cat "$T/lines")"
line "commit $(git describe --always --dirty 2>/dev/null || echo unknown), programs of .*"
line '1 passed, 0 failed, 0 not done, 1 skipped'
(cd / && "$T/else/swage-gpu/bin/swage" inspect "$T/else/swage-gpu/calib_data/tiny-llama") >"$T/lines" 2>&1 ||
    fail "swage: $(cat "$T/lines")"
rm -rf "$T/out"
pack 1 "$T/out/one.zip"
line 'gpu-bundle: GPU_BUNDLE=.*one.zip: it ends in .tar.gz, .tar.xz, .tar.zst or .tar'
MODELS=none pack 1 "$T/out/one.tar"
line 'gpu-bundle: .*: there is no tests/golden/models/none'
echo 'library libnone' >>"$T/contents"
pack 1 "$T/out/one.tar"
line 'gpu-bundle: .*: no program needs libnone'
sed -i 's/^library libnone/path tests\/none/' "$T/contents"
pack 1 "$T/out/one.tar"
line 'gpu-bundle: .*: there is no tests/none'
absent "$T/out/one.tar"
finish
