#!/usr/bin/env bash
# Checks that two versions of the library write the same files, and read each other's.
#   tests/abi/same_files.sh OLD NEW [SEED...]
# OLD, NEW: folders with libdcp.so.1, such as build/lib of two clones; if they are the same folder, this
# shows that files do not depend on the ranks. Saves random states (random_states.c; PROGRAM or
# build/tests/bin/random_states) with both versions on 1 to 8 ranks of one host and of several, compares
# all files by cmp, and loads the files of each with the other. The default SEEDs are 1 to 5.
set -euo pipefail

if [ $# -lt 2 ]; then
    sed -n '2,7s/^# //p' "$0" >&2
    exit 2
fi
old=$1 new=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
program=${PROGRAM:-$root/build/tests/bin/random_states}
. "$root/cmake/mpi-env.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

run() { # LIBRARY RANKS HOSTS SEED FOLDER save|load
    mpirun --oversubscribe -n "$2" -x LD_LIBRARY_PATH="$1" "$program" "$5" "$4" "$3" "$6"
}

compare() { # NAME RANKS FOLDER FOLDER PATTERN: compares the matching files of all steps
    local file
    for file in "$3"/$5; do
        cmp "$file" "$4/${file#"$3"/}" || { echo "$1: other bytes"; exit 1; }
        files=$((files + 1))
    done
}

for seed in "${@:-1 2 3 4 5}"; do
    for seed in $seed; do
        files=0
        for case in "1 1" "2 1" "2 2" "3 1" "4 1" "4 2" "6 3" "8 1" "8 4"; do
            read -r ranks hosts <<<"$case"
            what="seed $seed, $ranks ranks on $hosts hosts"
            for way in old new; do
                mkdir -p "$scratch/$way"
                run "${!way}" "$ranks" "$hosts" "$seed" "$scratch/$way" save
            done
            compare "$what" "$ranks" "$scratch/old" "$scratch/new" "global/step-*/state.h5"
            compare "$what" "$ranks" "$scratch/old" "$scratch/new" "sharded/step-*/shard-*.h5"
            run "$old" "$ranks" "$hosts" "$seed" "$scratch/new" load
            run "$new" $((ranks % 4 + 1)) 1 "$seed" "$scratch/old" load
            [ "$case" = "1 1" ] && cp -r "$scratch/new" "$scratch/one"
            compare "$what, beside one rank" "$ranks" "$scratch/one" "$scratch/new" "global/step-*/state.h5"
            rm -r "$scratch/old" "$scratch/new"
        done
        rm -r "$scratch/one"
        echo "seed $seed: $files files are the same"
    done
done
