#!/bin/sh
# House rules that a script can check: lengths, banned calls, includes from the root.
# An exception is written where it applies: "lint: long, <reason>" above a function (max 120 lines).
set -eu
cd "$(dirname "$0")/../.."
find formats kernels quant verify tools tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort | LC_ALL=C xargs awk '
function bad(text) { print FILENAME ":" FNR ": " text; failed = 1 }
FNR == 1 {
    if (waived) bad("unused lint waiver in the file before this one")
    waived = 0; start = 0; included = -1; in_lib = FILENAME ~ /^(formats|kernels|quant|verify)\//
    if ($0 !~ /^\/\*/ && FILENAME !~ /\.def$/) bad("a file begins with a comment saying what it is")
}
length($0) > 100 { bad("line of " length($0) " characters, at most 100") }
FNR == 601 { bad("file longer than 600 lines") }
/\t/ { bad("tab") }
/[ \t]+$/ { bad("blank at the end of the line") }
/lint: long, / { waived = 1 }
/^\{/ { start = FNR }
/^\}/ && start {
    size = FNR - start - 1
    if (size > 60 && !waived) bad("function of " size " lines, at most 60")
    if (size > 120) bad("function of " size " lines, at most 120 even with a waiver")
    if (size <= 60 && waived) bad("unused lint waiver")
    waived = 0; start = 0
}
in_lib && /[^_a-z](printf|puts|exit|abort|perror)\(/ && !/[^a-z]v?snprintf\(/ { bad("the library never prints or exits") }
/[^_a-zA-Z](strcpy|strcat|sprintf|gets|atoi|atof|rand)\(/ { bad("banned call") }
in_lib && /[^_a-z](malloc|calloc|realloc|free)\(/ && FILENAME !~ /formats\/base\/mem\.c/ { bad("memory comes from mem.h") }
/#include "\.\./ { bad("includes are written from the root") }
# Of lines of one kind that follow each other, so that a reader finds a header and a merge seldom meets another.
/^#include [<"][^>"]*\.(h|cuh)[>"]/ {
    path = $0; sub(/^#include ./, "", path); sub(/[>"].*/, "", path)
    if (path == "cmocka.h") path = "~" # which needs what the others declare
    kind = substr($0, 10, 1)
    if (FNR == included + 1 && kind == last_kind && path <= last_path) bad("includes are not in order")
    included = FNR; last_kind = kind; last_path = path
}
/#if 0/ { bad("dead code") }
END { exit failed }'

# What a merge leaves where two sides differ, in any text.
marks=$(grep -rlE '^(<{7}|>{7}) ' --include='*.[ch]' --include='*.cu' --include='*.cuh' --include='*.md' --include='*.def' \
    --include='*.sh' --include='*.bash' --include='*.mk' --include='*.csv' Makefile README.md formats kernels quant verify tools \
    tests calib_data 2>/dev/null || true)
[ -z "$marks" ] || { echo "$marks: a merge was not finished there"; exit 1; }

# A .c file of less than 30 lines belongs into a neighbour, unless it is compiled with flags of its own, is the table
# of a row's parts, or is all there is of its concept.
small=' kernels/cpu/simd/features.c kernels/cuda/abi.c kernels/engine/device_generate.c kernels/engine/vec/vec.c
quant/backend/cpu/cpu.c quant/backend/cuda/cuda.c
quant/search/algos.c tools/cli/loader_notes.c tools/device/cpu_setup.c '
find formats kernels quant verify tools -name '*.c' ! -name '*_any.c' ! -name '*_avx2.c' ! -name '*_avx512.c' |
    xargs wc -l | awk -v small="$small" '
    BEGIN { n = split(small, list); for (i = 1; i <= n; i++) known[list[i]] = 1 }
    $2 != "total" && $1 < 30 && !($2 in known) { print $2 ": only " $1 " lines; give it a home in a neighbour"; bad = 1 }
    $2 != "total" && $1 >= 30 && $2 in known { print $2 ": " $1 " lines, no longer small; take it off the list"; bad = 1 }
    END { exit bad }'

# So does a header of less than 30 lines that is not the interface of a source of its name. These stand:
small='
formats/base/hot.h                   a macro of the compiler for four rooms
formats/file/gguf_internal.h         what the three sources of the GGUF reader share
formats/gguf/gguf_vocab.h            the interface of gguf_vocab_write.c, and numbers that its reader needs
kernels/cpu/simd/transpose_avx.h     one step of two instruction sets
kernels/cpu/simd/unroll.h            a macro of the compiler for files of any instruction set
kernels/cuda/ops/mixers/mixer_decay.cuh  the device version of mixers/gates.h
kernels/cuda/ptx/whole_block.cuh     one rule for where blocks of tokens begin, for two families of kernels
kernels/engine/kv_form.h             read by gcc and by nvcc, which cannot read engine.h
kernels/engine/mixers/gates.h        one formula for two mixers
quant/method/rounding.h              what rtn.c, clip.c and gptq.c give to the backends
'
find formats kernels quant verify tools -name '*.h' -o -name '*.cuh' ! -name '*_table.cuh' | xargs wc -l |
    awk -v small="$small" '
    BEGIN {
        n = split(small, list, "\n")
        for (i = 1; i <= n; i++) if (split(list[i], word, " ") > 1) known[word[1]] = 1
    }
    $2 == "total" { next }
    {
        stem = $2; sub(/\.[a-z]*$/, "", stem)
        is_fragment = $1 < 30 && system("test -e " stem ".c -o -e " stem ".cu")
        if (is_fragment && !($2 in known)) fail($2 ": only " $1 " lines and no source of its name; give it a home in a neighbour")
        if (!is_fragment && $2 in known) fail($2 ": no longer a small header without a source; take it off the list")
        delete known[$2]
    }
    function fail(text) { print text; bad = 1 }
    END { for (path in known) fail(path ": not there; take it off the list"); exit bad }'

# A folder of sources has a README.md, or the next one above names it: `FOLDER/...` there.
find formats kernels quant verify tools -name '*.[ch]' -o -name '*.cu' -o -name '*.def' | sed 's|/[^/]*$||' | sort -u |
    while read -r room; do
        up=$room
        while [ ! -e "$up/README.md" ]; do up=${up%/*}; done
        [ "$up" = "$room" ] || grep -qE '`([a-z0-9_]+/)*'"${room##*/}/" "$up/README.md" ||
            echo "$room: has no README.md and $up/README.md does not name it"
    done | { ! grep .; }

# A comment that sends its reader to another file names one that is there.
files=$(find Makefile formats kernels quant verify tools tests -type f | sed 's|.*/||' | sort -u)
grep -rnoE '\b[Ss]ee [a-z0-9_]+\.(c|h|cu|cuh|def|sh|md|mk)\b' formats kernels quant verify tools tests --include='*.[ch]' --include='*.cu' \
    --include='*.cuh' --include='*.def' --include='*.sh' --include='*.mk' |
    awk -v files="$files" '
    BEGIN { n = split(files, list, "\n"); for (i = 1; i <= n; i++) there[list[i]] = 1 }
    { name = $0; sub(/.*[Ss]ee /, "", name); if (!(name in there)) { print $0 ": no such file"; bad = 1 } }
    END { exit bad }'
