#!/bin/bash
# bundle.sh CONFIG BUNDLE_DIR ARCHIVE - pack what `make gpu-bundle` has built in BUNDLE_DIR, with what bundle.txt
# lists and the MODELS of tests/golden/models: one folder, swage-gpu, whose places are those of a checkout.
# What another CONFIG adds goes into the same places. Prints the sizes and which libraries the system must have.
set -euo pipefail
cd "$(dirname "$0")/../.."
config=$1 built=$2 archive=$3
contents=${CONTENTS:-tests/make/bundle.txt}
stage=$(mktemp -d "${TMPDIR:-/tmp}/swage-bundle.XXXXXX")
trap 'rm -rf "$stage"' EXIT
top=$stage/swage-gpu
die() {
    echo "gpu-bundle: $*" >&2
    exit 1
}
case $archive in
    *.tar) press=(cat) ;;
    *.tar.gz) press=(gzip -9n) ;;
    *.tar.xz) press=(xz -7) ;;
    *.tar.zst) press=(zstd -q -19 --long=27) ;;
    *) die "GPU_BUNDLE=$archive: it ends in .tar.gz, .tar.xz, .tar.zst or .tar" ;;
esac
command -v "${press[0]}" >/dev/null || die "GPU_BUNDLE=$archive: there is no ${press[0]} here"

# listed KIND: the names of that kind in the table
listed() { awk -v kind="$1" '$1 == kind { print $2 }' "$contents"; }

copy_programs() {
    local to=$top/build/$config
    mkdir -p "$to/tests"
    cp "$built/swage" "$built"/*.so "$to/"
    for folder in gpu tools; do
        mkdir -p "$to/tests/$folder"
        find "$built/tests/$folder" -type f -perm -u+x -exec cp {} "$to/tests/$folder/" \;
    done
}

programs() { find "$top/build" -type f -perm -u+x -exec sh -c 'readelf -h "$1" >/dev/null 2>&1' sh {} \; -print; }

# A table that a program has copied out of a library is another one than the library's own.
check_copies() {
    local file
    for file in $(programs); do
        ! readelf -rW "$file" | grep 'R_X86_64_COPY.* sw_' || die "$file has a copy of what is the library's"
    done
}

# "NAME PATH" of every library that a program needs and this system has.
needed() { programs | xargs -d '\n' ldd 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u; }

copy_libraries() {
    local name
    mkdir -p "$top/lib"
    needed >"$stage/needed"
    for name in $(listed library); do
        awk -v want="$name.so" 'index($1, want) == 1' "$stage/needed" | grep . ||
            die "$contents: no program needs $name"
    done | while read -r name path; do cp -L "$path" "$top/lib/$name"; done
}

copy_sources() {
    local path models=()
    read -ra models <<<"${MODELS:-}"
    for path in $(listed path) "${models[@]/#/tests/golden/models/}"; do
        [ -e "$path" ] || die "$contents: there is no $path"
        mkdir -p "$top/$(dirname "$path")"
        cp -rL "$path" "$top/$path"
    done
    mkdir -p "$top/bin"
    ln -s "../build/$config/swage" "$top/bin/swage"
    ln -s tests/gpu/on_card.sh "$top/run.sh"
}

# Programs of two commits must not be taken for those of one.
note_commit() {
    git describe --always --dirty 2>/dev/null >"$top/COMMIT" || echo unknown >"$top/COMMIT"
    cp "$top/COMMIT" "$top/build/$config/COMMIT"
}

write_archive() {
    mkdir -p "$(dirname "$archive")"
    tar --sort=name --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' --mtime="@$(git log -1 --format=%ct 2>/dev/null ||
        echo 0)" -C "$stage" -c swage-gpu | "${press[@]}" >"$archive.part"
    mv "$archive.part" "$archive"
}

mib() { awk '{ printf "%.1f MiB", $1 / 1048576 }'; }
print_sizes() {
    local part
    for part in "build/$config/libswage_cuda.so" "build/$config/libswage_host.so" "build/$config/swage" "build/$config/tests" lib calib_data tests; do
        [ ! -e "$top/$part" ] || echo "  $part: $(du -sb "$top/$part" | mib)"
    done
    echo "  from the system: $(needed | awk -v top="$top/" 'index($2, top) != 1 && system("test -e " top "lib/" $1) { print $1 }' |
        sort -u | tr '\n' ' ')"
    echo "$archive: $(stat -c %s "$archive" | mib), unpacked $(du -sb "$top" | mib)"
}

copy_programs
check_copies
copy_libraries
[ "$config" != release ] || copy_sources
note_commit
write_archive
print_sizes
