#!/bin/sh
# Every file of calib_data is in MANIFEST with its size and SHA-256, and nothing else is there.
# With "update" as argument, writes MANIFEST instead. Token counts are kept as they stand there; a test
# holds them against the tokenizer.
set -eu
cd "$(dirname "$0")/../../calib_data"
tokens_of() { awk -v f="$1" '$5 == f { print $3; found = 1 } END { if (!found) print "-" }' MANIFEST; }
table() {
    echo "# sha256 bytes tokens licence path; sources in README.md"
    find . -type f ! -name MANIFEST ! -name README.md | sed 's|^\./||' | LC_ALL=C sort |
        while read -r f; do
            sum=$(sha256sum "$f" | cut -d' ' -f1)
            echo "$sum $(wc -c <"$f" | tr -d ' ') $(tokens_of "$f") MIT $f"
        done
}
if [ "${1:-}" = update ]; then
    new=$(table) && echo "$new" >MANIFEST
    exit 0
fi
table | diff MANIFEST - || { echo "calib_data differs from its MANIFEST" >&2; exit 1; }
