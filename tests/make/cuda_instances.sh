#!/bin/sh
# Write the translation units that kernels/cuda/instances.txt lists: cuda_instances.sh LIST FOLDER.
# A unit that says the same already is left alone, so that nothing is compiled again.
set -eu
list=$1 folder=$2
grep -v '^#' "$list" | while IFS='|' read -r template instance macros; do
    template=$(echo $template) instance=$(echo $instance)
    unit=$folder/${template}_$instance.cu
    mkdir -p "$(dirname "$unit")"
    {
        echo "/* Written by the build from $list. */"
        echo "#define SW_INSTANCE(name) name##_$instance"
        echo "$macros" | tr '|' '\n' | sed 's/^ *\([A-Z0-9_]*\)=/#define \1 /; s/ *$//'
        echo "#include \"${template}_table.cuh\""
    } >"$unit.new"
    if cmp -s "$unit.new" "$unit"; then rm "$unit.new"; else mv "$unit.new" "$unit"; fi
done
