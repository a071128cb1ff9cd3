#!/usr/bin/env bash
# cppcheck finds nothing in the product's C: neither errors (NULL, bounds, leaks, uninitialized
# memory) nor messages of its classes `warning` and `portability`, except those that cppcheck.txt
# lists with reasons. First, the check runs on a file with two faults, which it must find.
#   tests/structure/analysis.sh    exit status 1 and the findings; 77 without cppcheck
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

command -v cppcheck >/dev/null || { echo "no cppcheck here"; exit 77; }
check() { # FILES AND FOLDERS...
    cppcheck --quiet --std=c11 --error-exitcode=1 --max-configs=2 --enable=warning,portability -j "$(nproc)" \
        --suppressions-list=tests/structure/cppcheck.txt --include=tests/structure/cppcheck.h -DDCP_MPI=1 \
        -I libdcp/include -I libdcp -I kernels/include -I trainer -I reshard "$@"
}
faulty=$(mktemp --suffix .c)
trap 'rm -f "$faulty"' EXIT
echo 'int f(int n) { int *p = malloc(8), a[4]; if (n) return 1; a[4] = n; free(p); return a[0]; }' >"$faulty"
found=$(check "$faulty" 2>&1) && { echo "cppcheck has found nothing in a file with faults"; exit 1; }
for kind in memleak arrayIndexOutOfBounds; do
    grep -q "$kind" <<<"$found" || { echo "cppcheck has not found $kind: $found"; exit 1; }
done
check libdcp kernels/cpu trainer reshard
