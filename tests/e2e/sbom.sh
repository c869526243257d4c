#!/usr/bin/env bash
# The list of what is linked is an SPDX document that names each library which the loader loads, with
# its checksum, and is the same when it is made again; damaged documents are told from sound ones.
. "$(dirname "$0")/lib.bash"
[ "${BUILD:-build/release}" = build/release ] || { echo 'only the release build has a list'; exit 77; }
CHECK=$BUILD/tests/tools/check_spdx
made_by_one "$CHECK" sbom >"$T/log" 2>&1 || fail "make sbom: $(tail -n 3 "$T/log")"
sbom=$BUILD/swage.spdx.json
libraries=$(ldd "$SWAGE" | awk '$2 == "=>" {print $1}')
[ "$(wc -w <<<"$libraries")" -ge 8 ] || fail "libraries: $libraries"
# shellcheck disable=SC2086
expect 0 '' "$CHECK" "$sbom" swage $libraries
expect 1 'libnothing.so.1' "$CHECK" "$sbom" libnothing.so.1
name=$(awk '{print $1}' <<<"$libraries" | grep cjson)
sum=$(sha256sum "$(ldd "$SWAGE" | awk -v n="$name" '$1 == n {print $3}')" | cut -c1-64)
grep -q "$sum" "$sbom" || fail "no checksum of $name"
if command -v dpkg-query >/dev/null; then
    grep -q "\"versionInfo\": \"$(dpkg-query -W -f '${Version}' libcjson1)\"" "$sbom" || fail 'version of libcjson1'
    [ "$(grep -c '"licenseDeclared": "NOASSERTION"' "$sbom")" -le 2 ] || fail "licences: $(grep -B9 'Declared": "NOASS' "$sbom")"
fi
if [ ! -e "$BUILD/libswage_cuda.so" ]; then # which would be on the list as well
    version=$(sed -nE 's/^  "name": "swage-(.*)",/\1/p' "$sbom")
    bash tests/make/package/sbom.sh "$version" "$SWAGE" "$BUILD/libswage.so.$version" >"$T/again" || fail again
    cmp "$sbom" "$T/again" || fail 'not the same again'
    # what the loader itself says, which is asked where the program is for another machine and run by an emulator
    RUN=env bash tests/make/package/sbom.sh "$version" "$SWAGE" "$BUILD/libswage.so.$version" >"$T/loader" || fail loader
    cmp "$sbom" "$T/loader" || fail 'the loader says otherwise than ldd'
fi

# damage SED TEXT: a document that lacks something is refused for that
damage() {
    sed -E "$1" "$sbom" >"$T/bad.json"
    cmp -s "$sbom" "$T/bad.json" && fail "$1 changes nothing"
    expect 1 "$2" "$CHECK" "$T/bad.json"
}
damage 's/SPDX-2.3/SPDX-2.2/' 'spdxVersion'
damage '/"dataLicense"/d' 'dataLicense'
damage 's/("created": ").*"/\1yesterday"/' 'created'
damage '0,/"downloadLocation"/{/"downloadLocation"/d}' 'downloadLocation'
damage 's/SPDXRef-Lib-libm.so.6"/SPDXRef-Lib-libc.so.6"/' 'two packages of one SPDXID'
damage 's/("relatedSpdxElement": "SPDXRef-Lib-libm)/\1x/' 'a relationship to nothing'
damage 's/("checksumValue": ")[0-9a-f]{2}/\1/' 'a checksum'
damage 's/"licenseDeclared": "MIT"/"licenseDeclared": ""/' 'licenseDeclared'
finish
