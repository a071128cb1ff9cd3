#!/usr/bin/env bash
# dcp-train accepts every configuration in examples/configs unchanged, and the quickstart accepts a
# text. No process of the quickstart outlives it.
set -euo pipefail
shopt -s failglob
for config in "$DCP_SOURCE"/examples/configs/*.json; do
    "$DCP_BIN/dcp-train" "$config" --print-config >/dev/null || { echo "$config is refused"; exit 1; }
done

# The quickstart says at once if a text is too small to learn from.
dir=$(mktemp -d "${TMPDIR:-/tmp}/quickstart.XXXXXX")
trap 'rm -rf "$dir"' EXIT
echo hi >"$dir/tiny"
for text in "$dir/tiny" "$dir"; do
    status=0
    said=$("$DCP_SOURCE/examples/quickstart.sh" "$text" 2>&1) || status=$?
    [ $status -eq 2 ] && [ "$said" = "quickstart: $text holds 3 bytes of text; at least 4096 are needed" ] ||
        { echo "exit $status: $said"; exit 1; }
done

# When the quickstart is stopped, it ends after its dcp-run has ended; stand-ins replace the
# programs here. Until setup.sh has run, the machine has no text.
mkdir -p "$dir/examples" "$dir/cmake" "$dir/build/bin"
cp "$DCP_SOURCE/examples/quickstart.sh" "$dir/examples"
cp "$DCP_SOURCE/cmake/programs.sh" "$dir/cmake"
printf '#!/bin/sh\ntouch prepared\n' >"$dir/cmake/setup.sh"
printf '#!/bin/sh\n[ ! -e "%s" ] || echo 5000\n' "$dir/prepared" >"$dir/build/bin/find"
cat >"$dir/build/bin/cmake" <<'SH'
#!/bin/sh
[ "$1" = --build ] || exit 0
for i in $(seq 40); do echo "[$i/40] Building file $i"; done
[ ! -e broken ]
SH
printf '#!/bin/sh\necho "$2" >>"%s"\nexec "%s" "$@"\n' "$dir/used" "$(command -v python3)" >"$dir/build/bin/python3"
chmod +x "$dir/cmake/setup.sh" "$dir/build/bin"/{find,cmake,python3}
touch "$dir/cmake/mpi-env.sh"
cat >"$dir/build/bin/dcp-run" <<'SH'
#!/usr/bin/env bash
trap 'for i in {1..20}; do sleep 0.02; done; touch ended; exit 143' TERM
touch started
while :; do sleep 0.01; done
SH
chmod +x "$dir/build/bin/dcp-run"
PATH="$dir/build/bin:$PATH" "$dir/examples/quickstart.sh" >"$dir/out" 2>&1 &
until [ -e "$dir/started" ]; do
    kill -0 $! 2>/dev/null || { cat "$dir/out" && exit 1; }
    sleep 0.01
done
kill -TERM $!
status=0
wait $! || status=$?
[ $status -eq 143 ] && [ -e "$dir/ended" ] || { echo "exit $status, before dcp-run" && cat "$dir/out" && exit 1; }

grep -q 'import h5py' "$dir/used" || { echo "the python3 of PATH is not asked for h5py before training" && exit 1; }

# The quickstart shows ten lines of the build, or the end of the build's log if the build fails.
[ "$(grep -c '^  [0-9]* of 40 files$' "$dir/out")" -eq 10 ] || { echo "no progress" && cat "$dir/out" && exit 1; }
[ "$(wc -l <"$dir/build/quickstart/build.log")" -eq 40 ] || { echo "no log of the build" && exit 1; }
touch "$dir/broken"
status=0
PATH="$dir/build/bin:$PATH" "$dir/examples/quickstart.sh" >"$dir/out" 2>&1 || status=$?
[ $status -eq 3 ] && grep -q "the log is .*/build.log" "$dir/out" && grep -q '^\[40/40\]' "$dir/out" ||
    { echo "a failing build: $status" && cat "$dir/out" && exit 1; }
"$DCP_SOURCE/examples/quickstart.sh" --help | grep -q "examples/quickstart.sh \[TEXT\]" || { echo "--help shows no usage"; exit 1; }
status=0
said=$("$DCP_SOURCE/examples/quickstart.sh" --foo 2>&1) || status=$?
[ $status = 2 ] && [ "$said" = "quickstart: unknown option --foo; try --help" ] || { echo "--foo: $status: $said"; exit 1; }
said=$("$DCP_SOURCE/examples/quickstart.sh" a b 2>&1) || status=$?
[ $status = 2 ] && [ "$said" = "quickstart: 2 arguments, one at most; try --help" ] || { echo "a b: $status: $said"; exit 1; }
