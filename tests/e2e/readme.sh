#!/usr/bin/env bash
# The README's tables are the code's, and what it names is there.
. "$(dirname "$0")/lib.bash"
SWAGE=$SWAGE sh tests/lint/check_readme.sh || fail 'tables'

commands=$("$SWAGE" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' | tr '\n' ' ')
for c in $(grep -oE '^ {4}swage [a-z]+|`swage [a-z]+' README.md | sed 's/.*swage //' | sort -u); do
    case " $commands " in *" $c "*) ;; *) fail "README.md names swage $c" ;; esac
done
for t in $(grep -oE '`make [a-z-]+|^ {4}make [a-z-]+' README.md | sed 's/.*make //' | sort -u); do
    make -n "$t" >/dev/null 2>&1 || fail "README.md names make $t"
done
for p in $(grep -oE '`(formats|kernels|quant|verify|tools|tests|calib_data)/[A-Za-z0-9_./-]*' README.md |
    tr -d '`' | sort -u); do
    [ -e "$p" ] || fail "README.md names $p"
done
finish
