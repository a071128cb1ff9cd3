# Completion of libdcp's programs in bash: one file, installed under the name of each program.
#
# Where it offers nothing bash completes names of files.
# Options, and words like global|sharded that an option takes, come from the program's own --help, so
# they are always its own; so do the keys of dcp-train's configuration, from --print-keys.

_dcp_keys=

# _dcp_read_keys PROGRAM: fills _dcp_keys with "key" and "key=word|word", as --print-keys tells them.
_dcp_read_keys() {
    local key values rest from to
    [[ -z $_dcp_keys ]] || return 0
    while read -r key values rest; do
        [[ "$_dcp_keys " != *" $key"[=\ ]* ]] || continue # another optimizer has it, too
        if [[ $values =~ ^([0-9])\.\.([0-9])$ ]]; then
            to=${BASH_REMATCH[2]} values=${BASH_REMATCH[1]}
            for ((from = values + 1; from <= to; from++)); do values+="|$from"; done
        fi
        [[ $values == *'|'* ]] || values=
        _dcp_keys+=" $key${values:+=${values%|PATH}}"
    done < <("${1/#\~/$HOME}" --print-keys 2>/dev/null </dev/null)
}

declare -A _dcp_help_texts

# _dcp_help PROGRAM [SUBCOMMAND]: REPLY is what its --help prints.
_dcp_help() {
    local key="$*"
    [[ -v _dcp_help_texts[$key] ]] ||
        _dcp_help_texts[$key]=$("${1/#\~/$HOME}" "${@:2}" --help 2>/dev/null </dev/null)
    REPLY=${_dcp_help_texts[$key]}
}

# _dcp_subcommands HELP: REPLY is the words that may come first, from "Usage: dcp-x ls DIR".
_dcp_subcommands() {
    local line
    REPLY=
    while read -r line && [[ -n $line ]]; do
        [[ $line =~ ^(Usage: )?dcp-[a-z]+\ ([a-z|]+)( |$) ]] && REPLY+=" ${BASH_REMATCH[2]//|/ }"
    done <<<"$1"
}

# _dcp_requests HELP: REPLY is the words that may follow PATH, from "Usage: dcp-run ctl PATH save".
_dcp_requests() {
    local line
    REPLY=
    while read -r line && [[ -n $line ]]; do
        [[ $line =~ \ PATH\ ([a-z|]+) ]] && REPLY+=" ${BASH_REMATCH[1]//|/ }"
    done <<<"$1"
}

# _dcp_values HELP OPTION: REPLY is what it takes: the words of a|b; a dash where it takes anything;
# empty where it takes nothing.
_dcp_values() {
    local line
    REPLY=
    while IFS= read -r line; do # options are indented, prose about them is not
        [[ $line =~ ^\ +(-[a-z],\ )?"$2"\ ([^ ]+) ]] || continue
        REPLY=${BASH_REMATCH[2]}
        break
    done <<<"$1"
    case $REPLY in
    *'|'*) REPLY=${REPLY//|/ } ;;
    [A-Z]* | *=*) REPLY=- ;;
    *) REPLY= ;;
    esac
}

# _dcp_key_values KEY: REPLY is the words that a key of the configuration may be set to.
_dcp_key_values() {
    local entry
    REPLY=
    for entry in $_dcp_keys; do
        [[ $entry != "$1="* ]] || REPLY=${entry#*=}
    done
    REPLY=${REPLY//|/ }
}

# After dcp-run's --: the program's own completion.
_dcp_run_program() { # INDEX of PROGRAM in COMP_WORDS, CURRENT, PREVIOUS
    if ((COMP_CWORD == $1)); then
        COMPREPLY=($(compgen -c -- "$2"))
        return
    fi
    COMP_WORDS=("${COMP_WORDS[@]:$1}")
    COMP_CWORD=$((COMP_CWORD - $1))
    [[ ${COMP_WORDS[0]##*/} != dcp-* ]] || _dcp "${COMP_WORDS[0]}" "$2" "$3"
}

_dcp() { # COMMAND CURRENT PREVIOUS
    local program=$1 cur=$2 prev=$3 help i operands=() before=
    COMPREPLY=()
    # bash cuts words at =
    if [[ $cur == '=' ]]; then
        cur= before=$prev
    elif [[ $prev == '=' ]] && ((COMP_CWORD > 1)); then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- && ${program##*/} == dcp-run ]]; then
            _dcp_run_program $((i + 1)) "$2" "$3"
            return
        fi
        [[ ${COMP_WORDS[i]} == [-=]* ]] || operands+=("${COMP_WORDS[i]}")
    done
    _dcp_help "$program"
    help=$REPLY
    _dcp_subcommands "$help"
    local subcommands=$REPLY
    if [[ -n $subcommands && ${#operands[@]} -gt 0 && " $subcommands " == *" ${operands[0]} "* ]]; then
        _dcp_help "$program" "${operands[0]}"
        [[ -z $REPLY ]] || help=$REPLY
    fi

    local option=${before:-$prev}
    if [[ $option == -* ]]; then
        _dcp_values "$help" "$option"
        [[ $REPLY != - ]] || return 0
        if [[ -n $REPLY ]]; then
            COMPREPLY=($(compgen -W "$REPLY" -- "$cur"))
            return
        fi
    fi
    [[ ${program##*/} != dcp-train ]] || _dcp_read_keys "$program"
    if [[ -n $before ]]; then
        _dcp_key_values "$before"
        COMPREPLY=($(compgen -W "$REPLY" -- "$cur"))
    elif [[ $cur == -* ]]; then
        local options=$(grep -E '^ +-' <<<"$help" | grep -oE -- '(^ +|, )-(-[a-z][a-z-]*|[a-z])' | tr -d ' ,')
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
    elif [[ -n $subcommands && ${#operands[@]} -eq 0 ]]; then
        COMPREPLY=($(compgen -W "$subcommands" -- "$cur"))
    elif [[ ${program##*/} == dcp-run && ${operands[0]-} == ctl && ${#operands[@]} -eq 2 ]]; then
        _dcp_requests "$help"
        COMPREPLY=($(compgen -W "$REPLY" -- "$cur"))
    elif [[ ${program##*/} == dcp-train && ${#operands[@]} -gt 0 ]]; then
        local keys=($_dcp_keys)
        COMPREPLY=($(compgen -W "${keys[*]%%=*}" -S = -- "$cur"))
        [[ ${#COMPREPLY[@]} -eq 0 ]] || compopt -o nospace 2>/dev/null
    fi
}

complete -o default -F _dcp dcp-bench dcp-export dcp-import dcp-inspect dcp-reshard dcp-run dcp-train
