#!/usr/bin/env bash
# The completions that bash offers, requested as bash does: subcommands, options and their words,
# keys of the configuration and their words, and the program that dcp-run starts.
# configuration and their words, and the program that dcp-run starts.
. "$(dirname "$0")/tools_lib.sh"
. "$DCP_SOURCE/docs/completion/dcp.bash"

# offers EXPECTED WORDS...: the completions of the last word are EXPECTED, sorted. To bash, = is a
# word of its own.
offers() {
    local expected=$1 n=$#
    COMP_WORDS=("${@:2}")
    COMP_CWORD=$((n - 2))
    COMPREPLY=()
    _dcp "$2" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" || true
    local got=$(printf '%s\n' "${COMPREPLY[@]}" | sort | xargs)
    [ "$got" = "$expected" ] || fail "${*:2}: '$got', expected '$expected'"
}

complete -p dcp-train dcp-run dcp-inspect dcp-export dcp-import dcp-reshard dcp-bench >"$dir/out"
[ "$(grep -c '^complete -o default -F _dcp dcp-[a-z]*$' "$dir/out")" = 7 ] || fail "not registered"

offers "async load save" dcp-bench ""
offers "save" dcp-bench s
offers "--repeat" dcp-bench save dir --r
offers "verify" dcp-inspect ver
offers "--all" dcp-inspect verify --a
offers "" dcp-inspect show "" # completes file names
offers "global sharded" dcp-reshard a b --layout ""
offers "sharded" dcp-reshard a b --layout s
offers "sharded" dcp-reshard a b --layout = s
offers "--layout" dcp-reshard a --la
offers "bf16" dcp-export a b --dtype b
offers "hdf5 safetensors" dcp-export --format =
offers "--dry-run" dcp-export a b --dr

offers "" dcp-train ""
offers "--dry-run --help --ids --plan --plot --print-config --print-keys --prove-every --ranks --sample --seed --temperature --tokens --trace --version" dcp-train -
offers "data.dtype= data.eval_path= data.frames= data.pack= data.path= data.sequence_length= data.sources= data.tokenizer= data.type=" dcp-train config.json data.
offers "text tokens" dcp-train config.json data.type = t
offers "idx records safetensors speech text tokens" dcp-train config.json data.type =
offers "" dcp-train config.json data.path = dat # completes file names
offers "true" dcp-train config.json checkpoint.async = t
offers "never" dcp-train config.json checkpoint.resume = n
offers "optimizer.params.weight_decay=" dcp-train config.json optimizer.params.w
offers "0 1 2 3" dcp-train config.json zero_optimization.stage =

offers "--max --max-restarts" dcp-run --max
offers "--ranks --restart-ranks" dcp-run -n 4 --r
offers "seed=" dcp-run -n 4 -- dcp-train config.json se
offers "--print-config --print-keys --prove-every" dcp-run -n 4 -- dcp-train config.json --pr
offers "cosine" dcp-run -n 4 -- dcp-train config.json scheduler.type = cos
offers "" dcp-run -n 4 --watch d # completes file names
offers "fail same shrink" dcp-run --on-failure ""
offers "ctl" dcp-run ""
offers "" dcp-run ctl "" # completes file names
offers "resize save status stop" dcp-run ctl ckpt/.control ""
offers "save status stop" dcp-run ctl ckpt/.control s
offers "" dcp-run ctl ckpt/.control resize ""
offers "--help --version" dcp-run ctl --
