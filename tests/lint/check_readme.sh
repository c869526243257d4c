#!/bin/sh
# The tables in the README of a folder are what the tables in code say: `swage list NAME --markdown`
# for every NAME of a line "<!-- tables: NAME... -->", up to the line "<!-- tables: end -->".
# `check_readme.sh --write` brings them up to date.
set -eu
cd "$(dirname "$0")/../.."
swage=${SWAGE:-build/swage}
fresh=$(mktemp)
trap 'rm -f "$fresh"' EXIT

# The text of $1 with fresh tables.
renew() {
    skips=false
    while IFS= read -r line; do
        case $line in '<!-- tables: end -->') skips=false ;; esac
        $skips || printf '%s\n' "$line"
        case $line in
        '<!-- tables: end -->' | '') continue ;;
        '<!-- tables: '*' -->') ;;
        *) continue ;;
        esac
        skips=true
        names=${line#<!-- tables: }
        for table in ${names% -->}; do
            echo
            "$swage" list "$table" --markdown
        done
        echo
    done <"$1"
}

n_tables=0
for readme in formats/README.md quant/README.md; do
    n_tables=$((n_tables + $(sed -n 's/^<!-- tables: \(.*\) -->$/\1/p' "$readme" | grep -v '^end$' | wc -w)))
    renew "$readme" >"$fresh"
    if [ "${1:-}" = --write ]; then
        cat "$fresh" >"$readme"
    elif ! diff -u "$readme" "$fresh"; then
        echo "$readme: its tables are not those of the code; run tests/lint/check_readme.sh --write"
        exit 1
    fi
done
[ "$n_tables" -eq 5 ] || { echo "want 5 generated tables, have $n_tables"; exit 1; }
