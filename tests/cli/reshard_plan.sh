#!/usr/bin/env bash
# --dry-run prints a table, or JSON whose sums are consistent, and makes drawings that are valid
# XML, for few ranks and for many; it writes no step.
. "$(dirname "$0")/tools_lib.sh"
"$DCP_BIN/dcp-bench" save "$dir/g" --layers 2 --hidden 128 --vocab 1100 >"$dir/out"
step=$(cd "$dir/g" && echo step-*)
gives 0 dcp-reshard "$dir/g" "$dir/w4" --layout sharded --world 4
gives 0 dcp-reshard "$dir/w4" "$dir/w512" --layout sharded --world 512

plan() { gives 0 dcp-reshard "$@" --dry-run; }
is_drawing() { # FILE ELEMENT
    "$DCP_PYTHON" - "$1" "$2" <<'PY' || fail "$1 is no drawing of ${2}s"
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
assert root.tag == "{http://www.w3.org/2000/svg}svg", root.tag
shapes = [e for e in root.iter() if e.tag.endswith("}" + sys.argv[2])]
words = [(e.get("text-anchor"), float(e.get("x")), float(e.get("y"))) for e in root.iter() if e.tag.endswith("}text") and "x" in e.attrib]
below = {}
for anchor, x, y in words:
    below.setdefault((anchor, x), []).append(y)
for column in below.values():
    column.sort()
    assert all(b - a >= 12 for a, b in zip(column, column[1:])), f"labels overlap: {column}"
assert len(shapes) > 3 and not [e for e in root.iter() if "href" in str(e.attrib) or "script" in e.tag]
PY
}

plan "$dir/w4" "$dir/dst" --layout sharded --world 8
prints "^read .*$step: sharded, 4 files"
prints "shard-00007-of-00008.h5"
prints "rank .*read .*written .*moved"
plan "$dir/w4" "$dir/dst" --layout sharded --world 8 --json
"$DCP_PYTHON" - "$dir/out" "$dir/w4" <<'PY' || fail "the plan's numbers"
import json, sys
plan = json.load(open(sys.argv[1]))
flows, ranks = plan["flows"], plan["ranks"]
assert plan["from"]["ranks"] == 4 and plan["to"]["ranks"] == 8 and len(ranks) == 8
for r in ranks:
    n = r["rank"]
    assert r["read"] == sum(f["bytes"] for f in flows if f["from"] == n)
    assert r["written"] == sum(f["bytes"] for f in flows if f["to"] == n)
    assert r["moved"] == sum(f["bytes"] for f in flows if f["to"] == n != f["from"])
    assert r["file"] == "shard-%05d-of-00008.h5" % n and r["process"] == 0
assert sum(r["written"] for r in ranks) == sum(r["read"] for r in ranks) == plan["bytes"]
assert plan["moved"] == sum(r["moved"] for r in ranks)
h, v, layers = 128, 1100, 2
assert plan["bytes"] == 3 * 4 * (v * h + h + layers * (2 * h + 15 * h * h)), plan["bytes"]
assert {(f["from"], f["to"]) for f in flows if f["from"] == 3} == {(3, 6), (3, 7)} or \
    [f for f in flows if f["from"] == 3]
PY
plan "$dir/w4" "$dir/dst" --layout sharded --mesh fsdp=2,tp=2 --json
prints '"mesh": *"fsdp=2,tp=2"'
plan "$dir/w4" "$dir/dst" --layout global
prints "global, 1 file"
if [ -z "${DCP_ALONE-}" ]; then
    gives 0 $DCP_MPIRUN -n 2 dcp-reshard "$dir/w4" "$dir/dst" --layout sharded --world 3 --dry-run --json
    grep -q '"process": *1' "$dir/out" || fail "no rank is the second process'"
fi

plan "$dir/w4" "$dir/dst" --layout sharded --world 8 --svg "$dir/few.svg"
is_drawing "$dir/few.svg" path
plan "$dir/w4" "$dir/dst" --layout sharded --mesh fsdp=4,tp=2 --svg "$dir/mesh.svg"
grep -q "4 to 8 ranks, fsdp=4,tp=2: " "$dir/mesh.svg" || fail "the title has not the mesh"
gives 0 dcp-reshard "$dir/w4" "$dir/w8" --layout sharded --world 8
plan "$dir/w8" "$dir/dst" --layout sharded --world 96 --svg "$dir/uneven.svg"
is_drawing "$dir/uneven.svg" rect
plan "$dir/w512" "$dir/dst" --layout sharded --world 1024 --svg "$dir/many.svg" --json
is_drawing "$dir/many.svg" rect
[ "$(stat -c %s "$dir/many.svg")" -lt 2000000 ] || fail "the drawing of many ranks is too large"
[ ! -e "$dir/dst" ] || fail "--dry-run made $dir/dst"

gives 2 dcp-reshard "$dir/w4" "$dir/dst" --layout global --json
says "dry-run"
gives 2 dcp-reshard "$dir/w4" "$dir/dst" --layout global --svg "$dir/x.svg"
gives 2 dcp-reshard "$dir/w4" "$dir/dst" --layout global --dry-run --svg "$dir/no/where.svg"
says "no/where.svg"
gives 3 dcp-reshard "$dir/w4" "$dir/dst" --layout global --dry-run --svg /dev/full
