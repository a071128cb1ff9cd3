#!/usr/bin/env bash
# Engine mpio requires MPI: in a build without MPI, a run with that engine is refused at its start,
# before it has trained or written anything.
set -euo pipefail
dir=$(mktemp -d "${TMPDIR:-/tmp}/alone_engine.XXXXXX")
trap 'rm -rf "$dir"' EXIT
head -c 20000 /dev/zero | tr '\0' 'a' >"$dir/text"
cat >"$dir/run.json" <<JSON
{"model": {"model_type": "qwen3", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
           "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 256,
           "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "max_position_embeddings": 64},
 "data": {"type": "text", "path": "$dir/text", "sequence_length": 16}, "max_steps": 1,
 "train_batch_size": 1, "train_micro_batch_size_per_gpu": 1, "checkpoint": {"dir": "$dir/ckpt"}}
JSON
status=0
(cd "$dir" && "$DCP_BIN/dcp-train" run.json checkpoint.engine=mpio >out 2>err) || status=$?
[ $status = 2 ] || { echo "exit status $status"; cat "$dir/err"; exit 1; }
grep -q "checkpoint.engine: engine mpio: this libdcp was built without MPI-IO; use engine direct" "$dir/err"
[ ! -e "$dir/ckpt/latest" ]
(cd "$dir" && "$DCP_BIN/dcp-train" run.json checkpoint.engine=direct >out 2>&1)
"$DCP_BIN/dcp-inspect" verify "$dir/ckpt" >/dev/null
