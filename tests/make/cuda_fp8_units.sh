#!/bin/sh
# Print the files that read FP8 by instructions of sm_89, themselves or by what they include: to nvcc
# these say something else for sm_89 than for sm_80, and the others do not. cuda_fp8_units.sh FOLDER...
set -eu
found=$(grep -rlE 'cuda_fp8\.h|__CUDA_ARCH__ *[<>]=? *8' "$@" | sort)
while :; do
    names=$(for f in $found; do printf -- '-e "%s" ' "$f"; done) # includes are written from the root
    more=$({ echo "$found"; eval "grep -rlF $(echo "$names" | sed "s/\"[^\"]*\"/'&'/g") \"\$@\""; } | sort -u)
    [ "$more" != "$found" ] || break
    found=$more
done
echo "$found"
