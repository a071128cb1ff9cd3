#!/usr/bin/env bash
# Every program, and every key that accepts a path, refuses scheme:// by name with status 2, also
# with --dry-run, and makes nothing.
. "$(dirname "$0")/tools_lib.sh"
cd "$dir"
url=s3://bucket/run
refuses() {
    gives 2 "$@"
    says "$url is a URL, and s3:// is not supported"
    [ "$(wc -l <"$dir/err")" = 1 ] || fail "$*: more than one line"
}
"$MAKE_CHECKPOINT" steps 1 global >/dev/null
refuses dcp-import $url steps
for dry in "" --dry-run; do
    refuses dcp-import steps $url $dry
    refuses dcp-export $url exported $dry
    refuses dcp-export steps $url $dry
    refuses dcp-reshard $url exported --layout global $dry
    refuses dcp-reshard steps $url --layout global $dry
done
for command in ls show verify stat layout prove; do refuses dcp-inspect $command $url; done
refuses dcp-inspect diff steps $url
refuses dcp-inspect diff $url steps
for command in save async load; do refuses dcp-bench $command $url; done
refuses dcp-train $url
refuses dcp-train --sample text $url
refuses dcp-run ctl $url status
refuses dcp-run -n 1 --hosts $url -- true

printf 'some text' >text
cat >run.json <<'END'
{"model": {"model_type": "mlp", "hidden_size": 8}, "data": {"type": "text", "path": "text"}}
END
for dry in "" --dry-run; do
    for key in checkpoint.dir checkpoint.resume init model data.path data.eval_path data.tokenizer metrics \
        fsdp.offload_path; do
        refuses dcp-train run.json $key=$url $dry
        says "$key: $url"
    done
    refuses dcp-train run.json "checkpoint.stores=[{\"path\": \"$url\"}]" $dry
    refuses dcp-train run.json "data.sources=[{\"path\": \"$url\"}]" $dry
done
[ ! -e s3: ] && [ ! -e exported ] && [ ! -e ckpt ] || fail "something was made: $(find . | head -20)"

# Arguments after dcp-run's own ones are the program's, and are not checked.
notes dcp-run -n 1 --max-restarts 0 -- echo $url
prints "^$url"
