#!/usr/bin/env bash
# Compares libdcp with its peers on the same tensors, ranks and disk, and prints one table: PyTorch's
# distributed checkpoint (dcp), torch_checkpointing and Orbax, from PyPI. Exit status 1 if a peer is
# faster. A save counts until it is durable: a peer's files are synced within its time. Loads are cold.
# The target: libdcp is not slower than the best peer in any benchmark.
#   tests/bench/peers.sh [--only NAME,NAME,...] DIR
# DIR: a folder on the disk to measure; needs 12 GB there. NAMEs select systems (fio libdcp dcp
# torch_checkpointing orbax) and works (big small); without a NAME of a kind, all of that kind run.
# PEERS_VENV: a Python environment for the peers (XDG_CACHE_HOME/libdcp-peers), which pip makes and fills
# if it is missing (6 GB); PEERS_SITE: a site-packages folder with PyTorch, which is then not installed
# again. DCP_BIN: where dcp-bench is (build/bin). REPEAT: how often each is measured (3): the best
# counts. LIMIT: seconds that one measurement of a peer may take (900).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/bench/common.sh
. "$here/common.sh"
venv=${PEERS_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/libdcp-peers}
limit=${LIMIT:-900}
only=
if [ "${1:-}" = --only ]; then
    only=${2:-}
    shift 2
fi
if [ $# -ne 1 ]; then
    sed -n '2,13s/^# //p' "$0" >&2
    exit 2
fi
need fio mpirun "$bin/dcp-bench" python3

# chosen KIND...: prints those names of a kind that --only contains, or all of them if it contains
# none.
chosen() {
    local name found=
    for name; do
        case ",$only," in *,"$name",*) found+="$name " ;; esac
    done
    echo "${found:-$*}"
}
systems=$(chosen fio libdcp dcp torch_checkpointing orbax)
works=$(chosen big small)
wanted() { case " $systems " in *" $1 "*) ;; *) return 1 ;; esac; }

make_scratch "$1"
results=$scratch/results # system work op seconds GB/s stall

packages_of() {
    case $1 in
    dcp) echo torch numpy ;;
    torch_checkpointing) echo torch numpy torch_checkpointing ;;
    orbax) echo jax orbax-checkpoint ;;
    esac
}

# install PEER: installs its packages into the environment; returns 1 on failure.
install() {
    if [ ! -x "$venv/bin/python" ]; then
        python3 -m venv "$venv" || return 1
    fi
    if [ -n "${PEERS_SITE:-}" ]; then
        echo "$PEERS_SITE" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/peers.pth"
    fi
    # shellcheck disable=SC2046 # packages are words
    "$venv/bin/python" -m pip install -q $(packages_of "$1") >"$scratch/pip" 2>&1
}

note() { printf '%-20s %-6s %-6s %s\n' "$@"; } # SYSTEM WORK OP WHY

row() { # SYSTEM WORK OP FIGURES FIO
    local s gb stall
    read -r s gb stall <<<"$4"
    echo "$1 $2 $3 $s $gb $stall" >>"$results"
    awk -v sys="$1" -v work="$2" -v op="$3" -v s="$s" -v gb="$gb" -v stall="$stall" -v fio="$5" 'BEGIN {
        printf "%-20s %-6s %-6s %9.3f %7.3f %7s %9s\n", sys, work, op, s, gb,
            fio ? sprintf("%.2f", gb / fio) : "", op == "async" ? sprintf("%.1f", stall * 1e3) : "" }'
}

# choose OP: selects the best line of figures: the fewest seconds, or for async the shortest call.
choose() { if [ "$1" = async ]; then sort -g -k 3 | head -n 1; else best; fi; }

measure() { # SYSTEM WORK OP RANKS FIO COMMAND...: a row of COMMAND's figures, or the reason of a failure
    local system=$1 work=$2 op=$3 ranks=$4 fio=$5 found
    shift 5
    found=$("$@" 2>"$scratch/why" | figures | choose "$op") || true
    if [ -n "$found" ]; then
        row "$system" "$work" "$op" "$found" "$fio"
    else
        note "$system" "$work" "$op" "failed: $(grep -v '^ *$' "$scratch/why" | tail -n 1 | cut -c 1-100)"
    fi
}

peer() { # PEER OP RANKS OPTIONS...
    local name=$1 op=$2 ranks=$3
    shift 3
    timeout -s KILL "$limit" "$venv/bin/python" "$here/peers/peer_$name.py" "$op" "$scratch/$name" \
        --ranks "$ranks" --repeat "$repeat" "$@"
}

dcp_bench() { # OP RANKS OPTIONS...
    local op=$1 ranks=$2
    shift 2
    mpirun --oversubscribe -n "$ranks" "$bin/dcp-bench" "$op" "$scratch/ckpt" --repeat "$repeat" "$@"
}

each_op() { # SYSTEM WORK COMMAND OPTIONS...: measures COMMAND OP RANKS OPTIONS... for each OP
    local system=$1 work=$2 options
    shift 2
    case $work in
    big) options=("${big[@]}") ;;
    small) options=("${small[@]}") ;;
    esac
    measure "$system" "$work" async 4 "$fio_write" "$@" async 4 "${options[@]}"
    measure "$system" "$work" save 4 "$fio_write" "$@" save 4 "${options[@]}"
    measure "$system" "$work" load 8 "$fio_read" "$@" load 8 "${options[@]}"
}

fio_write=0
fio_read=0
if wanted fio; then
    fio_write=$(fio_gb write)
    fio_read=$(fio_gb read)
    rm -f "$scratch/fio"
fi
printf '%-20s %-6s %-6s %9s %7s %7s %9s\n' system work op seconds GB/s "of fio" "call, ms"
if wanted fio; then
    printf '%-20s %-6s %-6s %9s %7.3f\n' fio "" write "" "$fio_write" fio "" read "" "$fio_read"
fi
if wanted libdcp; then
    for work in $works; do
        each_op libdcp "$work" dcp_bench
        rm -rf "$scratch/ckpt"
    done
fi
for name in dcp torch_checkpointing orbax; do
    wanted "$name" || continue
    if ! install "$name"; then
        note "$name" "" "" "not installed: $(tail -n 1 "$scratch/pip" | cut -c 1-100)"
        continue
    fi
    for work in $works; do
        each_op "$name" "$work" peer "$name"
        rm -rf "${scratch:?}/$name"
    done
done

# Compares libdcp with the fastest peer, for each work and operation that both have.
[ -s "$results" ] || exit 1
awk '{ key = $2 " " $3; value = $3 == "async" ? $6 : $4
       if ($1 == "libdcp") ours[key] = value
       else if (!(key in peer) || value < peer[key]) { peer[key] = value; who[key] = $1 } }
     END { for (key in ours) if (key in peer) {
               slower = ours[key] > peer[key]
               printf "%s: libdcp %.4f s, best peer %.4f s (%s): %s\n", key, ours[key], peer[key],
                   who[key], slower ? "SLOWER" : "ok" | "sort"
               bad += slower }
           exit bad > 0 }' "$results"
