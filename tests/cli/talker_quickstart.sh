#!/usr/bin/env bash
# The talker's quickstart tells how it is called, refuses what it can't use in one line, and ends when its dcp-run has;
# the programs are stand-ins here.
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

mkdir "$dir/sounds" "$dir/bin"
/usr/bin/python3 - "$dir/sounds/one.wav" <<'PYTHON'
import random, sys, wave
with wave.open(sys.argv[1], "wb") as f:
    f.setparams((1, 2, 24000, 0, "NONE", ""))
    f.writeframes(random.Random(1).randbytes(9600))
PYTHON
ln -s /bin/true "$dir/bin/dcp-import"
cat >"$dir/bin/dcp-run" <<'SH'
#!/usr/bin/env bash
trap 'for i in {1..20}; do sleep 0.02; done; touch ended; exit 143' TERM
touch started
while :; do sleep 0.01; done
SH
chmod +x "$dir/bin/dcp-run"
LIBDCP_PROGRAMS=$dir/bin "$quickstart" "$dir/sounds" "$dir/out" >"$dir/log" 2>&1 &
until [ -e "$dir/out/work/started" ]; do
    kill -0 $! 2>/dev/null || { cat "$dir/log" && exit 1; }
    sleep 0.01
done
kill -TERM $!
status=0
wait $! || status=$?
[ $status -eq 143 ] || { echo "exit $status" && cat "$dir/log" && exit 1; }
[ -e "$dir/out/work/ended" ] || { echo "it ended before dcp-run" && cat "$dir/log" && exit 1; }
