#!/usr/bin/env bash
# Each option and exit status of dcp-inspect's commands has its effect; the Python tests check the
# values.
. "$(dirname "$0")/tools_lib.sh"
step=step-00000003
"$MAKE_CHECKPOINT" "$dir/c" 3
"$MAKE_CHECKPOINT" "$dir/other" 4
cp -r "$dir/c" "$dir/damaged"
printf x | dd of="$dir/damaged/$step/state.h5" bs=1 seek=100000 conv=notrunc status=none
full() { "$@" >/dev/full; } # nothing can be written to stdout

# differs COMMAND...: exits with 1, and stdout says what is different or damaged.
differs() {
    local status=0
    "$@" >"$dir/out" 2>"$dir/err" || status=$?
    [ $status -eq 1 ] || fail "$*: exit $status, expected 1"
}

gives 0 dcp-inspect ls "$dir/damaged"
prints "^$step .*complete"
gives 0 dcp-inspect ls "$dir/c" --verify
prints "^$step .*complete"
differs dcp-inspect ls "$dir/damaged" --verify
prints "^$step .*damaged .*big.weight, block 0"
gives 0 dcp-inspect ls "$dir/c" --json
prints '"damage": null'

gives 0 dcp-inspect show "$dir/c" norm --values 2
prints "^\[.*, .*, .*\]"
gives 0 dcp-inspect show "$dir/c" norm --json
prints '"values"'

gives 0 dcp-inspect verify "$dir/c" --all
differs dcp-inspect verify "$dir/damaged" --all
prints "big.weight, block 0 (bytes 0 to 4194304): damaged"
gives 0 dcp-inspect verify "$dir/c" --json
prints '"intact": true'

gives 0 dcp-inspect diff "$dir/c" "$dir/c/$step"
prints "^27 tensors: 27 same; meta the same$"
differs dcp-inspect diff "$dir/c" "$dir/other"
prints "^meta  *step: 3 against 4$"
gives 0 dcp-inspect diff "$dir/c" "$dir/other" --ignore-meta
gives 0 dcp-inspect diff "$dir/c" "$dir/other" 'model/*'
gives 0 dcp-inspect diff "$dir/c" "$dir/c" --all
prints "^same  */model/big.weight F32 \[1100, 1000\]$"
gives 0 dcp-inspect diff "$dir/c" "$dir/damaged" --quick # the tables are equal
gives 0 dcp-inspect diff "$dir/c" "$dir/c" --rtol 1e-5 --atol 0
gives 0 dcp-inspect diff "$dir/c" "$dir/c" --json
prints '"same": true'
gives 2 dcp-inspect diff "$dir/c" "$dir/nowhere"
gives 2 dcp-inspect diff "$dir/c" "$dir/c" --rtol -1
gives 2 dcp-inspect diff "$dir/c"
gives 3 full dcp-inspect diff "$dir/c" "$dir/c"

gives 0 dcp-inspect stat "$dir/c" --quick --depth 1
prints "^big  *1,100,000 "
gives 0 dcp-inspect stat "$dir/c" --json
prints '"histogram"'
gives 1 dcp-inspect stat "$dir/damaged"
says "tensor /model/big.weight, block 0"
gives 2 dcp-inspect stat "$dir/c" --depth 0
gives 2 dcp-inspect stat "$dir/nowhere"
gives 3 full dcp-inspect stat "$dir/c"

gives 0 dcp-inspect layout "$dir/c" --world 4
prints "^0 "
gives 0 dcp-inspect layout "$dir/c" --mesh fsdp=2,tp=2 --tp-rule '*norm=0' norm
prints "rank 2 "
gives 0 dcp-inspect layout "$dir/c" --world 4 --svg "$dir/who.svg"
grep -q '</svg>' "$dir/who.svg" || fail "no drawing"
gives 0 dcp-inspect layout "$dir/c" --world 4 --json
prints '"mesh": "fsdp=4"'
gives 2 dcp-inspect layout "$dir/c"
gives 2 dcp-inspect layout "$dir/nowhere" --world 4
gives 3 dcp-inspect layout "$dir/c" --world 4 --svg /dev/full
gives 3 full dcp-inspect layout "$dir/c" --world 4
for command in ls show verify diff stat layout; do
    gives 0 dcp-inspect $command --help
    prints "^Usage: dcp-inspect $command "
    prints "^  dcp-inspect $command "
    gives 0 dcp-inspect $command --version
    gives 2 dcp-inspect $command
    gives 2 dcp-inspect $command "$dir/c" --no-such-option
    says "unknown option --no-such-option"
done
