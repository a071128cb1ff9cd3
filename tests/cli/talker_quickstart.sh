#!/usr/bin/env bash
# The talker's quickstart prints its usage, refuses arguments that it cannot use in one line, and
# ends after its dcp-run has ended; stand-ins replace the programs here.
set -euo pipefail
dir=$(mktemp -d "${TMPDIR:-/tmp}/quickstart.XXXXXX")
trap 'rm -rf "$dir"' EXIT
quickstart=$DCP_SOURCE/examples/talker/quickstart.sh
usage="examples/talker/quickstart.sh [RECORDINGS [DIR]]"
"$quickstart" --help | grep -qF "$usage" || { echo "--help shows no usage"; exit 1; }

refused() { # MESSAGE ARGUMENTS...
    local said status=0
    said=$("$quickstart" "${@:2}" 2>&1) || status=$?
    [ "$status $said" = "2 $1" ] || { echo "${*:2}: exit $status: $said"; exit 1; }
}
refused "quickstart: unknown option --foo; try --help" --foo
refused "quickstart: 3 arguments, two at most; try --help" a b c
refused "realpath: $dir/none: No such file or directory" "$dir/none"
refused "quickstart: $dir holds no recording *.wav" "$dir"
refused "quickstart: $quickstart is a file: name a folder with NAME.wav and NAME.txt" "$quickstart"
LIBDCP_PROGRAMS=$dir refused "quickstart: LIBDCP_PROGRAMS=$dir: has no dcp-train; name the programs' folder"
for python in "$dir/none" "$dir" /bin/true; do
    PYTHON=$python refused \
        "quickstart: PYTHON=$python: no interpreter of Python that runs; name one, or leave PYTHON out"
done

mkdir "$dir/sounds" "$dir/bin"
"$DCP_PYTHON" - "$dir/sounds/one.WAV" <<'PYTHON'
import random, sys, wave
with wave.open(sys.argv[1], "wb") as f:
    f.setparams((1, 2, 24000, 0, "NONE", ""))
    f.writeframes(random.Random(1).randbytes(9600))
PYTHON
ln -s /bin/true "$dir/bin/dcp-import"
ln -s /bin/true "$dir/bin/dcp-train"
mkdir "$dir/fails"
ln -s /bin/false "$dir/fails/dcp-import"
ln -s /bin/true "$dir/fails/dcp-train"
cat >"$dir/bin/dcp-run" <<'SH'
#!/usr/bin/env bash
trap 'for i in {1..20}; do sleep 0.02; done; touch ended; exit 143' TERM
touch started
while :; do sleep 0.01; done
SH
printf '#!/bin/sh\ntouch "%s"\nexec "%s" "$@"\n' "$dir/used" "$(command -v python3)" >"$dir/bin/python3"
chmod +x "$dir/bin/dcp-run" "$dir/bin/python3"
cd "$dir"
LIBDCP_PROGRAMS=bin "$quickstart" sounds "$dir/out" >"$dir/log" 2>&1 &
first=$!
until [ -e "$dir/out/work/started" ]; do
    kill -0 $first 2>/dev/null || { cat "$dir/log" && exit 1; }
    sleep 0.01
done
refused "quickstart: another quickstart goes on in $dir/out: wait for its end, or name another DIR" "$dir/sounds" "$dir/out"
kill -TERM $first
status=0
wait $first || status=$?
[ $status -eq 143 ] || { echo "exit $status" && cat "$dir/log" && exit 1; }
[ -e "$dir/used" ] || { echo "the python3 of PATH is not used" && exit 1; }
[ -e "$dir/out/work/ended" ] || { echo "it ended before dcp-run" && cat "$dir/log" && exit 1; }

# Only files that an earlier quickstart left are replaced.
cp -r "$dir/sounds" "$dir/out/work/mine"
refused "quickstart: $dir/out/work/mine is in $dir/out/work, which is replaced: move it, or name another DIR" \
    "$dir/out/work/mine" "$dir/out"
LIBDCP_PROGRAMS=$dir/fails "$quickstart" "$dir/sounds" "$dir/out" >"$dir/log" 2>&1 || true
[ ! -e "$dir/out/work/mine" ] || { echo "an earlier quickstart's results are still there" && exit 1; }
grep -qxF "Replacing the results of an earlier quickstart in $dir/out/work" "$dir/log" || { cat "$dir/log" && exit 1; }
mkdir -p "$dir/other/work"
touch "$dir/other/work/precious"
refused "quickstart: $dir/other/work was made by no quickstart, which would replace it: move it away, or name another \
DIR" "$dir/sounds" "$dir/other"
[ -e "$dir/other/work/precious" ]
