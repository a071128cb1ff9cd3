#!/usr/bin/env bash
# run.sh [SECONDS [TARGET...]]: builds the fuzzers with clang (sanitizers on), runs each for SECONDS (1200)
# from its corpus, one after the other, and prints what they did. Where a target found nothing, its corpus
# becomes the least one with the same coverage. Findings are kept in build-fuzz/findings; exit 1 where
# there is one. Wants Debian's clang beside what cmake/setup.sh installs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-1200}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(fuzz_tables fuzz_json fuzz_safetensors fuzz_redundancy)
build=$PWD/build-fuzz
sanitize="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined"
cmake -G Ninja -B "$build" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Debug -DDCP_CUDA=OFF \
    -DDCP_FUZZ=ON -DCMAKE_C_FLAGS="-O1 -g -fno-omit-frame-pointer $sanitize" >/dev/null
nice cmake --build "$build" --target "${targets[@]}" >/dev/null
mkdir -p "$build/findings"
export ASAN_OPTIONS=quarantine_size_mb=64:detect_leaks=1

# fuzz TARGET: runs it, and where nothing was found, puts the least corpus in place.
fuzz() {
    local program=$build/tests/bin/$1 corpus=tests/fuzz/corpus/$1 work=$build/work/$1 least=$build/least/$1
    rm -rf "$work" "$least"
    mkdir -p "$work" "$least"
    nice -n 19 "$program" -max_total_time="$seconds" -rss_limit_mb=512 -timeout=5 -max_len=4096 \
        -use_value_profile=1 -print_final_stats=1 -dict=tests/fuzz/dictionary \
        -artifact_prefix="$build/findings/$1-" "$work" "$corpus" >"$build/$1.log" 2>&1 || return 1
    nice -n 19 "$program" -merge=1 -max_len=4096 "$least" "$work" "$corpus" >"$build/$1.merge.log" 2>&1 || return 1
    rm -f "$corpus"/*
    cp "$least"/* "$corpus"
}

status=0
for target in "${targets[@]}"; do
    echo "$target:"
    fuzz "$target" || status=1
    grep -E 'INITED|DONE|^Done|^SUMMARY|promise broken|^stat::' "$build/$target.log" || true
done
exit $status
