#!/usr/bin/env bash
# compiles.sh COMPILER: the kernels' tests also compile with this folder's stand-in for cmocka.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
"$1" -std=gnu11 -fsyntax-only -Wall -Wextra -Wstrict-prototypes -Werror -Itests/kernels/alone \
    -Ikernels/include -Ikernels -Itests/kernels/emulated \
    tests/kernels/alone/cmocka.c tests/kernels/kernel_case*.c tests/kernels/kernel_conformance.c \
    tests/kernels/kernel_exp.c tests/kernels/kernel_plans.c tests/kernels/kernel_spans.c
