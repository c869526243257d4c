#!/bin/sh
# Who may include whom. One row per folder: itself and everything it may reach.
# verify never includes quant: the judge shares no code with the judged.
set -eu
cd "$(dirname "$0")/../.."
find formats kernels quant verify tools -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort | xargs awk '
BEGIN {
    base = "formats/base"
    num = "formats/num " base
    pack = "formats/pack " num
    file = "formats/file " base
    model = "formats/model " file
    text = "formats/text " file
    dialect = "formats/dialect " pack " " file " formats/model formats/text"
    formats = dialect
    may["formats/base"] = base
    may["formats/num"] = num
    may["formats/pack"] = pack
    may["formats/file"] = file
    may["formats/dialect"] = dialect
    may["formats/model"] = model
    may["formats/text"] = text
    may["kernels"] = "kernels " formats
    may["quant"] = "quant kernels " formats
    may["verify"] = "verify kernels " formats
    may["tools"] = "tools verify quant kernels " formats
}
function folder(path, parts) {
    split(path, parts, "/")
    return parts[1] == "formats" ? parts[1] "/" parts[2] : parts[1]
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, quoted, "\"")
    from = folder(FILENAME)
    to = folder(quoted[2])
    n = split(may[from], allowed, " ")
    ok = 0
    for (i = 1; i <= n; i++) if (allowed[i] == to) ok = 1
    if (!ok) { print FILENAME ": " from " may not include " quoted[2]; bad = 1 }
    if (from != "kernels" && quoted[2] ~ /^kernels\/(cpu|cuda|ref)\//) {
        print FILENAME ": only kernels/ may include " quoted[2]; bad = 1
    }
    if (from == "verify" && quoted[2] ~ /^formats\/(pack|num|dialect)\// &&
        FILENAME ~ /decode_spec/) {
        print FILENAME ": the second decoder may not use " quoted[2]; bad = 1
    }
}
END { exit bad }'
