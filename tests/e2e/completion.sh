#!/usr/bin/env bash
# `swage completion`: the scripts as the shells run them, asked for what follows a line. Commands,
# options, names of values and files; every command and option of --help is there.
. "$(dirname "$0")/lib.bash"
COMMANDS=$("$SWAGE" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
mkdir "$T/files" "$T/files/model dir"
touch "$T/files/text one.txt" "$T/files/stats.bin"
skipped=

for shell in bash zsh fish; do
    expect 0 '' "$SWAGE" completion "$shell"
    cp "$T/stdout" "$T/swage.$shell"
done
expect 2 'did you mean bash?' "$SWAGE" completion bahs
expect 0 '' "$SWAGE" completion bash --json
grep -q '"result":.*swage.completion/1' "$T/stdout" || fail 'no JSON'

# What each shell answers to a line that ends where the cursor is: one answer a line.
in_bash() {
    (cd "$T/files" && bash --norc --noprofile -c '
        source "$1"
        line=${2//=/ = }
        read -ra COMP_WORDS <<<"$line"
        [[ $2 != *" " ]] || COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        compopt() { echo FILES; }
        _swage
        printf "%s\n" "${COMPREPLY[@]}"' - "$T/swage.bash" "$1" 2>&1)
}

in_fish() {
    (cd "$T/files" && HOME=$T XDG_CONFIG_HOME=$T fish --no-config -c '
        source $argv[1]
        complete -C $argv[2]' "$T/swage.fish" "$1" 2>&1 | cut -f 1)
}

# A shell of its own behind a pseudo-terminal; what compadd is handed is printed between marks.
in_zsh() {
    (cd "$T/files" && ZDOTDIR=$T TERM=dumb zsh -f -c '
        zmodload zsh/zpty
        zpty -b shell zsh -f -i
        zpty -w shell "PROMPT= RPS1= PS2=; unsetopt zle_bracketed_paste 2>/dev/null"
        zpty -w shell "autoload -Uz compinit && compinit -D -u && source $1"
        zpty -w shell "compadd() { local -a at; if [[ \${@[(I)-O|-A|-D]} -gt 0 ]]; then builtin compadd \"\$@\"; return; fi; builtin compadd -A at \"\$@\"; print -rl -- \"<\"\${^at}\">\"; builtin compadd \"\$@\" }"
        zpty -w shell "show() { zle complete-word; print \"<end>\"; exit }; zle -N show; bindkey \"^I\" show"
        zpty -w shell "print begin\$((1+1))"
        zpty -r shell seen "*begin2*"
        zpty -n -w shell "$2"$'"'\\t'"'
        zpty -r shell seen "*<end>*"
        print -r -- "$seen"' - "$T/swage.zsh" "$1" 2>&1 | tr '\r' '\n' | sed -n 's/.*<\(.*\)>.*/\1/p' | grep -v '^end$')
}

# answers SHELL LINE WANT... : each is among the answers; -WANT is not.
answers() {
    local shell=$1 line=$2 want have
    shift 2
    have=$("in_$shell" "$line")
    for want in "$@"; do
        case $want in
        !*) ! grep -qxF -e "${want#!}" <<<"$have" || fail "$shell offers ${want#!} after '$line'" ;;
        *) grep -qxF -e "$want" <<<"$have" || fail "$shell does not offer $want after '$line': $(tr '\n' ' ' <<<"$have" | head -c 400)" ;;
        esac
    done
}

for shell in bash fish zsh; do
    command -v "$shell" >/dev/null || { skipped="$skipped $shell" && continue; }
    # shellcheck disable=SC2086
    answers "$shell" 'swage ' $COMMANDS help
    answers "$shell" 'swage qua' quantize
    answers "$shell" 'swage quantize --sch' --scheme
    answers "$shell" 'swage quantize MODEL --scheme W4A' W4A16 W4A16_ASYM '!W8A8' '!gptq'
    answers "$shell" 'swage quantize MODEL -m ' gptq awq+gptq '!W4A16'
    answers "$shell" 'swage quantize MODEL --recipe nvfp4-ex' nvfp4-experts-fp8
    answers "$shell" 'swage quantize MODEL --device ' cpu cuda auto '!h200'
    answers "$shell" 'swage convert IN --to ' gguf bf16 compressed-tensors
    answers "$shell" 'swage plan MODEL --device ' h200 cuda '!W4A16'
    answers "$shell" 'swage list ' schemes recipes '!quantize'
    answers "$shell" 'swage man ' quantize doctor
    answers "$shell" 'swage help ' quantize
    answers "$shell" 'swage completion ' bash zsh fish
    answers "$shell" 'swage quantize MODEL --scheme W4A16 --for' --format --force '!W4A16'
    answers "$shell" 'swage verify OUT --color ' auto always never
done
answers bash 'swage quantize MODEL --scheme=W4A' W4A16
answers bash 'swage bench --weights bf16,w4' bf16,w4a16 '!w4a16'
answers bash 'swage bench --weights w4' w4a16
answers bash 'swage quantize ' FILES
answers bash 'swage quantize MODEL --calib a.txt b' FILES
answers bash 'swage quantize MODEL --calib ' FILES
answers bash 'swage quantize MODEL --calib a.txt --out' --out '!FILES'
answers bash 'swage quantize MODEL --samples ' '!FILES' '!quantize'
answers bash 'swage quantize MODEL -- --s' FILES '!--scheme'
command -v fish >/dev/null && {
    answers fish 'swage quantize MODEL --scheme=W4A' --scheme=W4A16
    answers fish 'swage bench --weights bf16,w4' bf16,w4a16 '!w4a16'
    answers fish 'swage bench --weights=bf16,w4' --weights=bf16,w4a16
    answers fish 'swage bench --weights w4' w4a16
    answers fish 'swage quantize MODEL --calib ' stats.bin 'text one.txt'
    answers fish 'swage list ' '!stats.bin'
}
command -v zsh >/dev/null && {
    answers zsh 'swage quantize MODEL --scheme=W4A' W4A16
    answers zsh 'swage bench --weights bf16,w4' w4a16
    answers zsh 'swage bench --weights w4' w4a16
    answers zsh 'swage quantize MODEL --calib a.txt st' stats.bin
}

# a person at bash: words and file names as readline completes them, quotes included
if command -v script >/dev/null; then
    typed=$(cd "$T/files" && printf 'source %s\nswage() { printf "<%%s>" "$@"; echo; }\nswage quan\tmod\t --meth\tsm\t+\t --calib te\t\nexit\n' \
    "$T/swage.bash" | TERM=dumb script -qec 'bash --norc --noprofile -i' /dev/null 2>&1 | tr -d '\r' | grep '^<' | tail -n 1)
[ "$typed" = '<quantize><model dir/><--method><smoothquant+gptq><--calib><text one.txt>' ] ||
    fail "typed in bash: $typed"
fi

# every command and option that help shows is completed
for c in $COMMANDS; do
    "$SWAGE" "$c" --help | grep -oE '^ {2,6}(-[a-z], )?--[a-z0-9-]+' | sed 's/.*--/--/' | sort -u >"$T/options"
    in_bash "swage $c --" | sort -u >"$T/offered"
    [ -z "$(comm -23 "$T/options" "$T/offered")" ] || fail "$c: not completed: $(comm -23 "$T/options" "$T/offered" | tr '\n' ' ')"
    grep -q -- '--json' "$T/offered" || fail "$c: no options"
done

# names are plain words, so that no script needs to quote them
bad=$(grep -oE "names='[^']*'" "$T/swage.bash" | grep -E "names='.*[^]A-Za-z0-9 ._+='-]" || true)
[ -z "$bad" ] || fail "names that a shell would change: $bad"
[ -z "$skipped" ] || echo "not installed, so not tried:$skipped"
[ "$skipped" != ' bash fish zsh' ] || exit 77
finish
