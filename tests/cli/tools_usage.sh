#!/usr/bin/env bash
# Help and version go to stdout with exit status 0; misuse is reported on stderr with status 2.
. "$(dirname "$0")/tools_lib.sh"
for program in dcp-export dcp-import dcp-inspect dcp-reshard; do
    gives 0 $program --help
    prints "Usage: $program"
    prints "Exit status"
    gives 0 $program --version
    prints "^$program [0-9]"
    gives 2 $program
    says "$program --help"
    gives 2 $program --no-such-option
    says "unknown option --no-such-option; try '$program --help'"
    [ "$(wc -l <"$dir/err")" = 1 ] || fail "more than one message"
    gives 2 $program -x
    says "unknown option -x"
done
gives 2 dcp-export a b --dtype
says "argument missing after --dtype"
for command in ls show verify stat layout; do
    gives 0 dcp-inspect $command --help
    prints "dcp-inspect $command"
    gives 2 dcp-inspect $command
    says "missing argument \(CKPT\|DIR\); try"
    gives 2 dcp-inspect $command a b c
    gives 2 dcp-inspect $command "$dir/nowhere"
    says nowhere
done
gives 2 dcp-inspect frob
says "'frob' is none of"
[ "$(wc -l <"$dir/err")" = 1 ] || fail "more than one message"

gives 2 dcp-export "$dir/nowhere" "$dir/out-folder"
gives 2 dcp-export a b c
gives 2 dcp-export a b --dtype f31
says "'f31' is none of"
gives 2 dcp-export a b --format zip
gives 2 dcp-export a b --max-shard-size 5XB
for size in -1 0 0.5 KB .5GB 1.5.5GB 1e3 5gb 5GBB "5 GB" 1KIB ""; do
    gives 2 dcp-export a b --max-shard-size "$size"
    says "must be a size of at least 1 byte, such as 5GB"
done
for size in 10EB 9223372036854775808 99999999999999999999TB 8EiB; do
    gives 2 dcp-export a b --max-shard-size $size
    says "'$size' is more than 9.2EB"
done
for size in 7.999EiB 1.5KiB 10TB 2.50kB 9223372036854775807; do
    gives 2 dcp-export "$dir/nowhere" b --max-shard-size $size
    says nowhere
done
gives 2 dcp-export a
says "missing argument OUT; try 'dcp-export --help'"
gives 2 dcp-export
says "missing argument CKPT; try"
gives 2 dcp-reshard --layout global
says "missing argument SRC; try 'dcp-reshard --help'"
gives 2 dcp-reshard a --layout sharded --world 2
says "missing argument DST; try"
gives 2 dcp-import a
says "missing argument CKPT_DIR; try"
gives 2 dcp-inspect diff a
says "missing argument B; try"
gives 2 dcp-inspect show
says "missing argument CKPT; try"
gives 2 dcp-bench save
says "missing argument DIR; try"
gives 2 dcp-reshard "$dir/nowhere" b --layout global --world 4
says "--world has no effect here: a global file serves any mesh and any number of ranks"

gives 2 dcp-import "$dir/nowhere" "$dir/dst"
says nowhere
gives 2 dcp-import a b c
touch "$dir/file"
gives 2 dcp-import "$dir/file" "$dir/dst"
says "not a folder"
[ ! -e "$dir/dst" ] || fail "a failed import made a folder"

gives 2 dcp-reshard a b
says "layout"
gives 2 dcp-reshard a b --layout round
gives 2 dcp-reshard a b --layout sharded
says "needs --world"
for world in 0 -3 x 4x 100000 99999999999999999999; do
    gives 2 dcp-reshard a b --layout sharded --world $world
    says "whole number"
done
gives 2 dcp-reshard a b --layout sharded --mesh fsdp=2 --world 3
says contradicts
for mesh in "" fsdp fsdp=0 fsdp=2,fsdp=2 pp=2 fsdp=99999,tp=2; do
    gives 2 dcp-reshard a b --layout sharded --mesh "$mesh"
    says "--mesh"
done
for rule in "" x x=8 =1; do
    gives 2 dcp-reshard a b --layout sharded --mesh tp=2 --tp-rule "$rule"
    says "--tp-rule"
done
# All tools report a path that leads through a file as a wrong path.
through=$dir/file/x
for command in ls show verify stat layout diff; do
    gives 2 dcp-inspect $command "$through" $([ $command != diff ] || echo "$dir")
    says "$through"
done
for command in "dcp-export $through $dir/out" "dcp-import $through $dir/out" \
    "dcp-reshard $through $dir/out --layout global" "dcp-bench save $through" "dcp-bench load $through"; do
    gives 2 $command
done

gives 2 dcp-reshard "$dir/nowhere" "$dir/dst" --layout global
[ ! -e "$dir/dst" ] || fail "a failed run made a folder"
