#!/usr/bin/env bash
# A small demonstration of a voice: a random talker memorizes recordings on two ranks, is exported with the voice's name,
# and speaks them in PyTorch, code by code. A stand-in codec in numpy makes the codes, so no published model is needed.
#   examples/talker/quickstart.sh [RECORDINGS [DIR]]
# RECORDINGS: a folder of some short NAME.wav, and NAME.txt with their texts (default: eight from Debian's alsa-utils).
# Results go to DIR/work and replace those of an earlier quickstart (default: build/talker). PYTHON: the interpreter for
# PyTorch (default: python3); if it has no torch, an environment of some gigabytes is made in DIR/environment.
# LIBDCP_PROGRAMS: a folder with the programs; otherwise they are built.
set -euo pipefail
refuse() { echo "quickstart: $1" >&2 && exit 2; }
case "${1:-}" in
--help | -h) sed -n '2,8s/^# *//p' "${BASH_SOURCE[0]}" && exit 0 ;;
-*) refuse "unknown option $1; try --help" ;;
esac
[ $# -le 2 ] || refuse "$# arguments, two at most; try --help"
recordings=
if [ $# -gt 0 ]; then
    recordings=$(realpath -e -- "$1") || exit 2
    [ -d "$recordings" ] || refuse "$recordings is a file: name a folder with NAME.wav and NAME.txt"
    [ -n "$(find "$recordings" -maxdepth 1 -iname '*.wav' -print -quit)" ] ||
        refuse "$recordings holds no recording *.wav"
fi
programs=${LIBDCP_PROGRAMS:-}
if [ -n "$programs" ]; then
    [ -x "$programs/dcp-train" ] || refuse "LIBDCP_PROGRAMS=$programs: has no dcp-train; name the programs' folder"
    programs=$(realpath -- "$programs")
fi
python=python3
if [ -n "${PYTHON:-}" ]; then
    python=$("$PYTHON" -c 'import sys; print(sys.executable)' 2>/dev/null) || true
    [ -x "$python" ] || refuse "PYTHON=$PYTHON: no interpreter of Python that runs; name one, or leave PYTHON out"
fi
root=$(realpath -- "$(dirname "${BASH_SOURCE[0]}")/../..")
dir=${2:-$root/build/talker}
mkdir -p -- "$dir" || exit 2
dir=$(realpath -- "$dir")
environment=$dir/environment work=$dir/work
case "$recordings/" in
"$work"/*) refuse "$recordings is in $work, which is replaced: move it, or name another DIR" ;;
esac
[ ! -e "$work" ] || [ -e "$work/.quickstart" ] ||
    refuse "$work was made by no quickstart, which would replace it: move it away, or name another DIR"
exec {lock}>>"$dir/.lock"
flock -n "$lock" || refuse "another quickstart goes on in $dir: wait for its end, or name another DIR"
cd "$root"

say() { printf '\n== %s\n' "$*"; }
give_up() {
    echo "quickstart: $1; the log is $2:" >&2
    tail -n 20 "$2" >&2
    exit 3
}

# follow LOG PID: shows the lines about steps of a run in the background
follow() {
    tail --pid="$2" -s 0.2 -n +1 -F "$1" 2>/dev/null | while read -r word step _ loss _; do
        [ "$word" != step ] || echo "  step $step, loss $loss"
    done
}

if [ -z "$programs" ]; then
    cmake/setup.sh
    say "Building the programs into build/ (a minute the first time, nothing the second)"
    cmake/programs.sh "$dir/build.log"
fi
export PATH="${programs:-$root/build/bin}:$PATH" PYTHONDONTWRITEBYTECODE=1
plain= # the first interpreter with numpy, for scripts that need nothing else
for candidate in python3 /usr/bin/python3; do
    [ "$plain" ] || ! "$candidate" -c 'import numpy' 2>/dev/null || plain=$candidate
done
[ "$plain" ] || refuse "python3 has no numpy (Debian: python3-numpy)"
. cmake/mpi-env.sh
[ ! -e "$work" ] || echo "Replacing the results of an earlier quickstart in $work"
rm -rf "$work" && mkdir "$work" && touch "$work/.quickstart"
cd "$work"
example=$root/examples/talker config=$root/examples/configs/talker-small.json

# Takes recordings from a Debian package, which is unpacked here and not installed.
fetch_recordings() {
    [ "$(id -u)" -ne 0 ] || apt-get update -q
    apt-get download -q alsa-utils
    dpkg-deb -x alsa-utils_*.deb package
}
if [ -z "$recordings" ]; then
    sounds=/usr/share/sounds/alsa
    say "Recordings: eight of a few words each, which Debian's package alsa-utils has"
    if [ ! -e $sounds/Front_Center.wav ]; then
        fetch_recordings >fetch.log 2>&1 ||
            give_up "no recordings: install the package alsa-utils, or name a folder" "$work/fetch.log"
        sounds=package$sounds
    fi
    recordings=recordings
    mkdir $recordings
    cp $sounds/{Front,Rear,Side}_*.wav $recordings # without the recording of noise
    for path in "$recordings"/*.wav; do # their names are their texts
        name=$(basename "$path" .wav)
        echo "${name//_/ }" >"${path%.wav}.txt"
    done
else
    say "Recordings: those of $recordings"
fi

say "A small random talker, and a codec for these recordings: 16 codes of 64 each for 80 ms"
"$plain" "$example/small_talker.py" "$config" base rows.jsonl "$recordings"

say "Records of text, codes and the speaker's vector"
"$plain" "$example/stand_in.py" records.safetensors rows.jsonl --model base | tee records.log
data=$(sed -n 's/^"data": //p' records.log)
records=$(wc -l <rows.jsonl)
steps=$((records > 8 ? 12 * records : 96)) # each recording is used about a hundred times

run= # dcp-run's pid
# No rank outlives this script: at the first signal the ranks save and end; at the second they end at once.
end_run() {
    [ -n "$run" ] || return 0
    trap 'kill "$run" 2>/dev/null || true' INT TERM
    echo "quickstart: waiting for the ranks to end" >&2
    kill "$run" 2>/dev/null || return 0
    while kill -0 "$run" 2>/dev/null; do wait "$run" || true; done
}
trap end_run EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "Training on 2 ranks, $steps steps from the imported folder, all but what reads text, saved at every step"
dcp-import base ckpt
dcp-run -n 2 -- dcp-train "$config" "data=$data" data.eval_path=records.safetensors max_steps=$steps \
    metrics=metrics.jsonl log_every=$((steps / 8)) >train.log 2>&1 &
run=$!
follow train.log $run &
follower=$!
wait $run || { run= && give_up "training failed" "$work/train.log"; }
run=
wait $follower || true
"$plain" - <<'PYTHON'
import json, sys
lines = [json.loads(line) for line in open("metrics.jsonl")]
print("    step    loss of the talker    of the predictor")
for line in [lines[0]] + lines[::-(len(lines) // 8)][::-1]:
    print("%8d %21.4f %19.4f" % (line["step"], line["losses"]["talker"], line["losses"]["predictor"]))
if any(lines[-1]["losses"][name] > loss / 10 for name, loss in lines[0]["losses"].items()):
    sys.exit("the talker learned little")
PYTHON

say "What the last step moved; on XFS or btrfs what did not move is stored once for all steps"
mapfile -t last < <(printf '%s\n' ckpt/step-* | tail -n 2)
dcp-inspect diff "${last[@]}" --all --quick >moved.log || [ $? -eq 1 ] || give_up "dcp-inspect failed" "$work/moved.log"
grep -E '^same |^[0-9]+ tensors' moved.log

say "Exporting it with a voice, whose name is anna"
dcp-export ckpt export --voice Anna --voice-from records.safetensors
"$plain" -c 'import json; c = json.load(open("export/config.json"))["talker_config"]
print("its vector is row %d of the %d of the table of codes" % (c["spk_id"]["anna"], c["vocab_size"]))'

make_environment() {
    { [ -x "$environment/bin/python" ] || "$python" -m venv "$environment"; } &&
        "$environment/bin/python" -m pip install --quiet --disable-pip-version-check numpy safetensors torch
}
if ! "$python" -c 'import numpy, safetensors, torch' 2>/dev/null; then
    say "Making an environment with PyTorch in $environment (minutes the first time)"
    if make_environment >pip.log 2>&1; then
        python=$environment/bin/python
    else
        tail -n 3 pip.log >&2
        say "Done but for one thing: without PyTorch the export was NOT read and does not speak. PYTHON=... names an" \
            "interpreter that has torch and safetensors. The log is $work/pip.log; all else is in $work"
        exit 0
    fi
fi
say "The export in PyTorch: the losses of the trained step, and what it says of each text, the likeliest code by code"
"$python" "$example/speak.py" export records.safetensors metrics.jsonl sounds

say "Done: what dcp-train learned, PyTorch computes and says. The codec that came with the export made sound of its" \
    "codes, $work/sounds; checkpoints, records, metrics and the export are in $work, too"
