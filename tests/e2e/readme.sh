#!/usr/bin/env bash
# The tables in the folders' READMEs are the code's, and what the READMEs name is there: commands,
# targets of make, files, links. The first README stays short.
. "$(dirname "$0")/lib.bash"
SWAGE=$SWAGE sh tests/lint/check_readme.sh || fail 'tables'
[ "$(wc -l <README.md)" -le 100 ] || fail "README.md has $(wc -l <README.md) lines, want at most 100"

# is_there FOLDER NAME: a path from the root or from FOLDER, or the end of a path anywhere;
# with * and {a,b} as the shell has them.
is_there() {
    local path
    for path in $(eval "echo $2"); do
        [ -e "$path" ] || [ -e "$1/$path" ] || compgen -G "$path" >/dev/null || compgen -G "$1/$path" >/dev/null ||
            [ -n "$(find . -path ./build -prune -o -path "*/$path" -print -quit)" ] || return 1
    done
}

commands=$("$SWAGE" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' | tr '\n' ' ')
for readme in README.md */README.md formats/*/README.md kernels/cuda/README.md; do
    folder=$(dirname "$readme")
    for c in $(grep -oE '^ {4}swage [a-z]+|`swage [a-z]+' "$readme" | sed 's/.*swage //' | sort -u); do
        case " $commands " in *" $c "*) ;; *) fail "$readme names swage $c" ;; esac
    done
    for t in $(grep -oE '`make [a-z-]+|^ {4}make [a-z-]+' "$readme" | sed 's/.*make //' | sort -u); do
        make -n "$t" >/dev/null 2>&1 || fail "$readme names make $t"
    done
    # upper case stands for a name of the reader's: dialect_X.c
    for p in $(grep -oE '`[A-Za-z0-9_.*/{},-]+(/|\.(c|h|cu|cuh|def|sh|mk|md|csv|bash))`' "$readme" | tr -d '`' |
        grep -vE '(^|[/_-])[A-Z]+([/_.]|$)' | sort -u); do
        is_there "$folder" "$p" || fail "$readme names $p"
    done
    for p in $(grep -oE '\]\([^)#]+' "$readme" | sed 's/](//' | grep -v '^http' | sort -u); do
        [ -e "$folder/$p" ] || fail "$readme links to $p"
    done
done
finish
