#!/bin/sh
# The README's tables are what the tables in code say: `swage list --markdown`, between markers.
# `check_readme.sh --write` brings them up to date.
set -eu
cd "$(dirname "$0")/../.."
swage=${SWAGE:-build/swage}
fresh=$(mktemp)
trap 'rm -f "$fresh"' EXIT
{
    sed '/^<!-- tables: begin/q' README.md
    for table in schemes methods formats conversions architectures; do
        echo
        "$swage" list $table --markdown
    done
    echo
    sed -n '/^<!-- tables: end/,$p' README.md
} >"$fresh"
if [ "${1:-}" = --write ]; then
    cat "$fresh" >README.md
elif ! diff -u README.md "$fresh"; then
    echo "README.md: its tables are not those of the code; run tests/lint/check_readme.sh --write"
    exit 1
fi
