#!/bin/bash
# sbom.sh VERSION FILE... >OUT.json - what the programs and libraries FILE are linked with, as SPDX 2.3.
#
# A FILE.a is one that went into them. The loader says which other libraries there are, dpkg which packages and versions they are of, and their
# copyright files under which licences; what no package owns has the version that its name says and
# NOASSERTION. A library of several licences gets that of "Files: *", where the file says so, else the
# first; the comment of a package has the words of its distribution. The same files give the same text
# under one SOURCE_DATE_EPOCH.
set -euo pipefail
export LC_ALL=C
# shellcheck source=tests/make/package/libraries.bash
. "$(dirname "$0")/libraries.bash"
version=$1
shift
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Makefile)}
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
self=$(sha256sum "$1" | cut -c1-64)
files=() static=
for f in "$@"; do
    case $f in *.a) static+="${static:+$'\n'}$(basename "$f") $f" ;; *) files+=("$f") ;; esac
done

# text VALUE: as a JSON string
text() { printf '"%s"' "$(printf %s "$1" | tr -d '\000-\037' | sed 's/[\\"]/\\&/g')"; }

# spdx_of DEBIAN_NAME: the licence as SPDX calls it
spdx_of() {
    case $1 in
    Expat | MIT) echo MIT ;;
    'BSD-3-clause or GPL-2') echo 'BSD-3-Clause OR GPL-2.0-only' ;;
    BSD-2-[cC]lause*) echo BSD-2-Clause ;;
    BSD-3-[cC]lause* | BSD | Modified-BSD | modified-BSD) echo BSD-3-Clause ;;
    Apache-2.0 | Apache-2) echo Apache-2.0 ;;
    GPL-2) echo GPL-2.0-only ;;
    GPL-2+) echo GPL-2.0-or-later ;;
    GPL-3+) echo GPL-3.0-or-later ;;
    LGPL-2.1+) echo LGPL-2.1-or-later ;;
    LGPL-2.1) echo LGPL-2.1-only ;;
    Zlib | zlib) echo Zlib ;;
    *) echo NOASSERTION ;;
    esac
}

# said_in COPYRIGHT: the licence of all files, in the words of the file
said_in() {
    [ -r "$1" ] || return 0
    awk 'tolower($0) ~ /^files: *\*/ { all = 1 } /^$/ { all = 0 }
         tolower($1) == "license:" { $1 = ""; sub(/^ */, ""); if (!first) first = $0; if (all && !of_all) of_all = $0 }
         END { print of_all != "" ? of_all : first }' "$1"
}

# owner_of LIBRARY: the package that owns it, under either name of a merged /usr. dpkg is asked once for all.
names_of() { printf '%s\n' "$1" "$(realpath "$1")" "${1#/usr}" "/usr$1"; }
owner_of() {
    local name
    while read -r name; do
        awk -v name="$name" '$2 == name { sub(/(:[a-z0-9]+)?:$/, "", $1); print $1; exit }' <<<"$owners" | grep . && return 0
    done < <(names_of "$1")
    return 0
}

# package LIBRARY_NAME PATH: one object
package() {
    local name=$1 path=$2 owner release source said spdx comment
    owner=$(owner_of "$path")
    if [ -n "$owner" ]; then
        release=$(dpkg-query -W -f '${Version}\n' "$owner" | head -n 1)
        source=$(dpkg-query -W -f '${source:Package}\n' "$owner" | head -n 1)
        said=$(said_in "/usr/share/doc/$owner/copyright")
        spdx=$(spdx_of "$said")
        comment="package $owner of source $source; licence in its words: ${said:-not said in one}"
    else
        release=${name##*.so.}
        # the toolkit of CUDA says its version in a header: 13000 is 13.0
        [ "$release" != "$name" ] || release=$(awk '$2 == "CUDART_VERSION" { print int($3 / 1000) "." int($3 % 1000 / 10); exit }' \
            "$(dirname "$path")/../include/cuda_runtime_api.h" 2>/dev/null || true)
        release=${release:-unknown}
        owner=$name source=$name spdx=NOASSERTION comment='no package owns this file'
    fi
    # where libgcc and its kin say GPL in one word, they mean it with their exception for what links them
    case $owner:$source:$spdx in
    libquadmath*:*:*) spdx=LGPL-2.0-or-later ;;
    *:gcc-*:GPL-3.0-or-later | *:gcc-*:NOASSERTION) spdx='GPL-3.0-or-later WITH GCC-exception-3.1' ;;
    *:glibc:NOASSERTION) spdx=LGPL-2.1-or-later ;;
    esac
    printf '    {\n      "name": %s,\n      "SPDXID": "SPDXRef-Lib-%s",\n' "$(text "$owner")" "$(id_of "$name")"
    printf '      "versionInfo": %s,\n      "packageFileName": %s,\n' "$(text "$release")" "$(text "$name")"
    printf '      "supplier": "NOASSERTION",\n      "downloadLocation": "NOASSERTION",\n      "filesAnalyzed": false,\n'
    printf '      "checksums": [{"algorithm": "SHA256", "checksumValue": "%s"}],\n' "$(sha256sum "$path" | cut -c1-64)"
    printf '      "licenseConcluded": "NOASSERTION",\n      "licenseDeclared": %s,\n' "$(text "$spdx")"
    printf '      "copyrightText": "NOASSERTION",\n      "comment": %s\n    }' "$(text "$comment")"
}
id_of() { printf %s "$1" | tr -c 'A-Za-z0-9.-' '-'; }

# NAME PATH of each library, once; the loader itself and what the kernel brings have no name of a file
libraries=$(libraries_of "${files[@]}" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 } $1 ~ /^\/.*ld-linux/ { n = $1; sub(/.*\//, "", n); print n, $1 }' |
    sort -u -k1,1)
# what links its own parts at run time brings none of them from elsewhere
libraries=$(grep -v '^libswage' <<<"$libraries" || true)
[ -n "$libraries" ] || { echo "sbom: no libraries of $*" >&2; exit 1; }
if libraries_of "${files[@]}" | grep -q 'not found'; then
    echo "sbom: $(libraries_of "${files[@]}" | grep 'not found' | head -n 1)" >&2
    exit 1
fi

owners=$(command -v dpkg-query >/dev/null &&
    while read -r name path; do names_of "$path"; done <<<"$libraries${static:+$'\n'$static}" |
    xargs -d '\n' dpkg-query -S 2>/dev/null | sed 's/, [^:]*:[^:]*: /: /' || true)

printf '{\n  "spdxVersion": "SPDX-2.3",\n  "dataLicense": "CC0-1.0",\n  "SPDXID": "SPDXRef-DOCUMENT",\n'
printf '  "name": "swage-%s",\n  "documentNamespace": "https://spdx.org/spdxdocs/swage-%s-%s",\n' "$version" "$version" "$self"
printf '  "creationInfo": {\n    "created": "%s",\n    "creators": ["Tool: swage-make-sbom-%s"]\n  },\n' "$created" "$version"
printf '  "documentDescribes": ["SPDXRef-Swage"],\n  "packages": [\n'
printf '    {\n      "name": "swage",\n      "SPDXID": "SPDXRef-Swage",\n      "versionInfo": %s,\n' "$(text "$version")"
printf '      "packageFileName": %s,\n' "$(text "$(basename "$1")")"
printf '      "supplier": "NOASSERTION",\n      "downloadLocation": "NOASSERTION",\n      "filesAnalyzed": false,\n'
printf '      "checksums": [{"algorithm": "SHA256", "checksumValue": "%s"}],\n' "$self"
printf '      "licenseConcluded": "MIT",\n      "licenseDeclared": "MIT",\n      "copyrightText": %s\n    }' \
    "$(text "$(sed -n 's/^Copyright/&/p' LICENSE | head -n 1)")"
while read -r name path; do
    printf ',\n'
    package "$name" "$path"
done <<<"$libraries${static:+$'\n'$static}"
printf '\n  ],\n  "relationships": [\n    {\n      "spdxElementId": "SPDXRef-DOCUMENT",\n      "relationshipType": "DESCRIBES",\n'
printf '      "relatedSpdxElement": "SPDXRef-Swage"\n    }'
while read -r name path; do
    printf ',\n    {\n      "spdxElementId": "SPDXRef-Swage",\n      "relationshipType": "DYNAMIC_LINK",\n'
    printf '      "relatedSpdxElement": "SPDXRef-Lib-%s"\n    }' "$(id_of "$name")"
done <<<"$libraries"
[ -z "$static" ] || while read -r name path; do
    printf ',\n    {\n      "spdxElementId": "SPDXRef-Swage",\n      "relationshipType": "STATIC_LINK",\n'
    printf '      "relatedSpdxElement": "SPDXRef-Lib-%s"\n    }' "$(id_of "$name")"
done <<<"$static"
printf '\n  ]\n}\n'
