#!/usr/bin/env bash
# run.sh [SECONDS [TARGET...]]: builds the fuzzers with clang (sanitizers on), runs all of them
# simultaneously for SECONDS (1200), each from its corpus and seeds, and prints one line per target. If a
# target finds nothing, its corpus is replaced by the smallest one with the same coverage. Findings go to
# build-fuzz/findings, logs beside it; exit 1 if there are any. FUZZ_TIMEOUT: seconds after which an
# input counts as slow (5; use more if the machine does other work). Requires Debian's clang besides what
# cmake/setup.sh --tests installs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-1200}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(fuzz_tables fuzz_json fuzz_safetensors fuzz_redundancy)
build=$PWD/build-fuzz
sanitize="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined"
cmake -G Ninja -B "$build" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Debug -DDCP_CUDA=OFF -DDCP_TRAINER=OFF \
    -DDCP_FUZZ=ON -DCMAKE_C_FLAGS="-O1 -g -fno-omit-frame-pointer $sanitize" >/dev/null
nice cmake --build "$build" --target "${targets[@]}" >/dev/null
mkdir -p "$build/findings"
export ASAN_OPTIONS=quarantine_size_mb=64:detect_leaks=1

# fuzz TARGET: runs it; if it found nothing, replaces its corpus by the smallest one.
fuzz() {
    local program=$build/tests/bin/$1 corpus=tests/fuzz/corpus/$1 work=$build/work/$1 least=$build/least/$1
    local inputs=("$work" "$corpus")
    [ ! -d "tests/fuzz/seeds/$1" ] || inputs+=("tests/fuzz/seeds/$1")
    rm -rf "$work" "$least"
    mkdir -p "$work" "$least"
    nice -n 19 "$program" -max_total_time="$seconds" -rss_limit_mb=512 -timeout="${FUZZ_TIMEOUT:-5}" \
        -max_len=4096 -use_value_profile=1 -print_final_stats=1 -dict=tests/fuzz/dictionary \
        -artifact_prefix="$build/findings/$1-" "${inputs[@]}" >"$build/$1.log" 2>&1 || return 1
    nice -n 19 "$program" -merge=1 -max_len=4096 "$least" "${inputs[@]}" >"$build/$1.merge.log" 2>&1 || return 1
    rm -f "$corpus"/*
    cp "$least"/* "$corpus"
}

# figure LOG WORD: prints the number after the last WORD.
figure() { grep -oE "$2 *[0-9]+" "$1" | tail -n 1 | grep -oE '[0-9]+$' || echo '?'; }

# tell TARGET STATUS: prints the target's line.
tell() {
    local log=$build/$1.log found=none
    [ "$2" = 0 ] || found=$(grep -m 1 -E '^SUMMARY|promise broken|ERROR: ' "$log" || echo "see $log")
    echo "$1: $(figure "$log" 'Done [0-9]+ runs in') s," \
        "$(figure "$log" 'stat::number_of_executed_units:') executions," \
        "edges $(grep INITED "$log" | grep -oE 'cov: [0-9]+' | grep -oE '[0-9]+$' || echo '?')" \
        "to $(figure "$log" 'cov:'), peak $(figure "$log" 'stat::peak_rss_mb:') MB, findings: $found"
}

declare -A runs
for target in "${targets[@]}"; do
    fuzz "$target" &
    runs[$target]=$!
done
failed=0
for target in "${targets[@]}"; do
    status=0
    wait "${runs[$target]}" || status=1
    tell "$target" $status
    [ $status = 0 ] || failed=1
done
exit $failed
