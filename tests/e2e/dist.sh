#!/usr/bin/env bash
# The source archive has the same bytes from another folder, with another umask, clock and order of
# files, and out of its own contents; what git does not know, or has in build/, is not in it.
. "$(dirname "$0")/lib.bash"
command -v git >/dev/null || { echo 'no git'; exit 77; }
DIST=$PWD/tests/make/package/dist.sh
git() { command git -c user.name=a -c user.email=a@b -c init.defaultBranch=main "$@"; }

# tree NAME FILE...: a small repository with these files, in this order.
tree() {
    local dir=$T/$1 f
    shift
    mkdir -p "$dir/sub/build" "$dir/build"
    for f in "$@"; do echo "$f" >"$dir/$f"; done
    chmod 755 "$dir/run"
    echo all: >"$dir/Makefile"
    echo /build/ >"$dir/.gitignore"
    (cd "$dir" && git init -q && git add . && GIT_COMMITTER_DATE='@1700000000 +0000' git commit -qm one)
    touch "$dir/stranger" "$dir/build/object"
}
tree one run sub/a sub/build/b 'sub/with blank'
(umask 077 && tree two 'sub/with blank' sub/build/b sub/a run)
for t in one two; do
    (cd "$T/$t" && sh "$DIST" x-1 build/x.tar.gz) >"$T/log" 2>&1 || fail "$t: $(cat "$T/log")"
done
grep -q 'note: 1 files differ' "$T/log" || fail "no note of what is not committed: $(cat "$T/log")"
cmp "$T/one/build/x.tar.gz" "$T/two/build/x.tar.gz" || fail 'two trees'
mkdir "$T/un"
tar -xf "$T/one/build/x.tar.gz" -C "$T/un"
[ -x "$T/un/x-1/run" ] && [ -f "$T/un/x-1/sub/build/b" ] || fail "$(find "$T/un")"
[ "$(find "$T/un" -type f | wc -l)" -eq 6 ] || fail "files: $(find "$T/un" -type f)"
[ "$(stat -c %Y "$T/un/x-1/run")" = 1700000000 ] || fail 'date'
(cd "$T/un/x-1" && sh "$DIST" x-1 build/x.tar.gz) >"$T/log" 2>&1 || fail "again: $(cat "$T/log")"
cmp "$T/one/build/x.tar.gz" "$T/un/x-1/build/x.tar.gz" || fail 'an archive of an archive'
(cd "$T/one" && SOURCE_DATE_EPOCH=1800000000 sh "$DIST" x-1 build/y.tar.gz) >"$T/log" 2>&1 || fail 'epoch'
cmp -s "$T/one/build/x.tar.gz" "$T/one/build/y.tar.gz" && fail 'SOURCE_DATE_EPOCH changes nothing'
rm "$T/one/sub/a" # git still knows it
(cd "$T/one" && sh "$DIST" x-1 build/z.tar.gz) >"$T/log" 2>&1 && fail 'a missing file is not noticed'
[ ! -e "$T/one/build/z.tar.gz" ] || fail 'half an archive is left'
finish
