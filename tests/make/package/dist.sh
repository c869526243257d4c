#!/bin/sh
# dist.sh NAME OUT.tar.gz - the source as an archive with the same bytes whoever makes it and when.
#
# What goes in is what git knows of, as it lies in the working tree; in an unpacked archive, which has
# no git, all but build/. Every file gets one date: SOURCE_DATE_EPOCH, else that of the last commit, else
# that of the Makefile, which an archive keeps, so that an archive of an archive is the same again.
set -eu
export LC_ALL=C
name=$1 out=$2
list=$(mktemp)
trap 'rm -f "$list" "$out.part" "$out.part.gz"' EXIT
if [ -e .git ]; then
    git ls-files -z >"$list"
    epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    changed=$(git status --porcelain | wc -l)
    [ "$changed" -eq 0 ] || echo "note: $changed files differ from the last commit" >&2
else
    find . -path ./build -prune -o -type f -print0 | sed -z 's|^\./||' >"$list"
    epoch=${SOURCE_DATE_EPOCH:-$(stat -c %Y Makefile)}
fi
sort -z -o "$list" "$list"
[ -s "$list" ] || { echo "dist: no files" >&2; exit 1; }
mkdir -p "$(dirname "$out")"
# In two steps, so that no error of tar is lost.
tar --format=ustar --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' \
    --transform="s|^|$name/|S" --no-recursion --null --files-from="$list" -cf "$out.part"
gzip -6n <"$out.part" >"$out.part.gz"
mv "$out.part.gz" "$out"
sha256sum "$out"
