#!/usr/bin/env bash
# run.sh [SECONDS [TARGET...]]: builds the fuzzers with clang (sanitizers on) and runs each for SECONDS
# (1200) from its corpus, one after the other; then adds what it found, minimised, to the corpus.
# Findings lie in build-fuzz/findings; exit 1 where there is one. Wants clang with compiler-rt and
# cmake, not part of setup.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-1200}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(fuzz_tables fuzz_json fuzz_safetensors)
build=$PWD/build-fuzz
sanitize="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined"
cmake -G Ninja -B "$build" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Debug -DDCP_CUDA=OFF \
    -DDCP_FUZZ=ON -DCMAKE_C_FLAGS="-O1 -g -fno-omit-frame-pointer $sanitize" >/dev/null
nice cmake --build "$build" --target "${targets[@]}" >/dev/null
mkdir -p "$build/findings"
export ASAN_OPTIONS=quarantine_size_mb=64:detect_leaks=1
status=0
for target in "${targets[@]}"; do
    corpus=tests/fuzz/corpus/$target work=$build/work/$target
    mkdir -p "$corpus" "$work"
    nice -n 19 "$build/tests/bin/$target" -max_total_time="$seconds" -rss_limit_mb=512 -timeout=5 \
        -max_len=4096 -use_value_profile=1 -print_final_stats=1 \
        -artifact_prefix="$build/findings/$target-" \
        -dict="tests/fuzz/dictionary" "$work" "$corpus" >"$build/$target.log" 2>&1 || status=1
    mkdir -p "$build/minimal/$target"
    rm -f "$build/minimal/$target"/*
    nice -n 19 "$build/tests/bin/$target" -merge=1 -max_len=4096 "$build/minimal/$target" \
        "$work" "$corpus" >"$build/$target.merge.log" 2>&1 || status=1
    echo "$target: $(grep -E 'cov:' "$build/$target.log" | tail -n 1)"
    grep -E '^(stat::|Done|SUMMARY|==)' "$build/$target.log" || true
done
exit $status
