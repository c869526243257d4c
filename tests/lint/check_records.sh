#!/bin/sh
# Every file of tests/bench is named once in a table of its README.md, and nothing else is: a record
# that nobody names is one that nobody finds, or brings up to date. What texts and sources cite as
# bench/FILE is there.
set -eu
cd "$(dirname "$0")/../.."
grep -rnoE '\bbench/[A-Za-z0-9_-]+\.(csv|txt|md|sh)\b' .changelog.md README.md formats kernels quant verify tools tests calib_data |
    while IFS=: read -r file line name; do
        [ -e "tests/$name" ] || echo "$file:$line: tests/$name is cited, but not there"
    done | { ! grep .; }
cd tests/bench
list=$(sed -n 's/^| `\([^`]*\)` |.*/\1/p' README.md | LC_ALL=C sort)
find . ! -path . ! -name README.md | sed 's|^\./||' | LC_ALL=C sort |
    LC_ALL=C awk -v list="$list" '
    BEGIN {
        n = split(list, name, "\n")
        for (i = 1; i <= n; i++) if (named[name[i]]++) say(name[i], "is named twice")
    }
    !($0 in named) { say($0, "is not named; say in a table what it holds and what makes it") }
    { there[$0] }
    END {
        for (i = 1; i <= n; i++) if (!(name[i] in there)) say(name[i], "is named, but not there")
        exit bad
    }
    function say(file, what) { print "tests/bench/README.md: " file " " what; bad = 1 }'
