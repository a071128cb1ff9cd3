#!/usr/bin/env bash
# Each exit status and option of dcp-train has the meaning that its man page gives.
. "$(dirname "$0")/tools_lib.sh"
cd "$dir"
for i in {1..400}; do echo "$i times $((i % 13)) is $((i * (i % 13)))"; done >text
cat >config.json <<'JSON'
{"model": {"model_type": "qwen3", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24,
           "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
           "max_position_embeddings": 32, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
           "tie_word_embeddings": true},
 "data": {"path": "text", "sequence_length": 32}, "max_steps": 2, "train_batch_size": 4}
JSON

# Like `gives`, for a program that writes to stderr whether or not it succeeds.
ends() {
    local expected=$1 status=0
    shift
    "$@" >out 2>err || status=$?
    [ $status -eq "$expected" ] || fail "$*: exit $status, expected $expected"
}

ends 0 dcp-train --help
prints "^Usage: dcp-train CONFIG.json"
ends 0 dcp-train --version
prints "^dcp-train [0-9]"
ends 0 dcp-train config.json --print-config seed=9
prints '"seed": 9'
prints '"take_over": false'
ends 0 env DCP_RUN_TAKE_OVER=1 dcp-train config.json --print-config # as dcp-run sets it at a restart
prints '"take_over": true'
ends 0 dcp-train config.json --dry-run
says "would start at random"
[ ! -e ckpt ] || fail "--dry-run made the directory"

ends 0 dcp-train config.json
[ -e ckpt/step-00000002/state.h5 ] || fail "the last step is not saved"
says "2 steps in .* where the time of 1 rank went"
says "reductions"
ends 0 dcp-train config.json checkpoint.dir=proven --prove-every 1
ends 0 dcp-train config.json checkpoint.dir=traced --trace trace.json
grep -q '"name": "forward unit 1"' trace.json || fail "--trace: no work in it"
ends 0 dcp-train config.json --plan --ranks 8
prints "8 ranks on this machine: .* fits"
ends 0 dcp-train --plot drawing.svg traced/metrics.jsonl
[ -s drawing.svg ] || fail "--plot draws nothing"
ends 0 dcp-train --sample "12 times" --tokens 9 --temperature 0.5 --seed 3 ckpt
[ "$(wc -l <out)" -ge 1 ] || fail "--sample writes nothing"
ends 2 dcp-train --sample "12 times"
says "one CKPT"
ends 2 dcp-train config.json max_step=3
says "unknown key; did you mean max_steps"
ends 2 dcp-train config.json --no-such-option
ends 2 dcp-train config.json --plan --print-config
says "one at a time"
gives 2 dcp-train --print-keys --plan
says "one at a time"
gives 2 dcp-train --print-keys config.json
says "takes no CONFIG.json"
gives 2 dcp-train --plot drawing.svg
says "one METRICS.jsonl"
gives 2 dcp-train --dry-run=yes
says "this option takes no value: --dry-run=yes"
gives 2 dcp-train --help=3
says "this option takes no value: --help=3"
ends 2 dcp-train config.json --plan --trace planned.json
says "--trace goes with training"
to_full() { "$@" >/dev/full; }
ends 3 to_full dcp-train config.json checkpoint.dir=mute
says "warning: stdout: No space left on device: no more lines are shown; training continues"
[ "$(grep -c stdout err)" -eq 1 ] || fail "that stdout is full is not said once"
[ -e mute/step-00000002/state.h5 ] || fail "a full stdout lost the training"
ends 3 to_full dcp-train config.json --print-config
says "cannot write to stdout"
ends 3 to_full dcp-train --help
ends 3 to_full dcp-train --sample 12 ckpt
says "cannot write to stdout"
ends 3 dcp-train config.json optimizer.params.lr=1e30 checkpoint.dir=diverged max_steps=20
says "diverged"
for file in ckpt/step-*/state.h5; do # damages everything except the user block
    dd if=/dev/urandom of="$file" bs=4096 seek=1 count=$(($(stat -c %s "$file") / 4096 - 1)) \
        conv=notrunc status=none
done
ends 1 dcp-train config.json max_steps=3
says "is damaged"

# Sends SIGTERM or SIGUSR2 after a step: dcp-train receives the signal once it has printed the line
# of that step.
asked() { # SIGNAL DIR: sends the signal to dcp-train, whose pid is then in $train
    mkfifo $2.lines
    dcp-train config.json checkpoint.dir=$2 checkpoint.every=0 max_steps=1000000 metrics=null \
        >$2.lines 2>stopped.err &
    train=$!
    exec 3<$2.lines
    read -r _ <&3
    kill -$1 $train
}
asked TERM stopped
ends 143 wait $train
asked USR2 again
ends 75 wait $train
for saved in stopped again; do
    ls $saved/step-*/state.h5 >/dev/null || fail "$saved: nothing is saved"
done
