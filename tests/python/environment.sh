#!/usr/bin/env bash
# Makes the environment for run.sh below DIR, or updates an existing one: torch, and the frameworks that the package has
# adapters for.
#   tests/python/environment.sh DIR
# PYTHON names the Python from which it is made (default python3).
set -euo pipefail

if [ $# -ne 1 ]; then
    sed -n '2,5s/^# //p' "$0" >&2
    exit 2
fi
mkdir -p "$1"
dir=$(cd "$1" && pwd)
export PIP_DISABLE_PIP_VERSION_CHECK=1
python=$dir/environment/bin/python
"$python" -m pip --version >/dev/null 2>&1 || "${PYTHON:-python3}" -m venv --clear "$dir/environment"
"$python" -m pip install --quiet numpy h5py torch mypy transformers accelerate safetensors scikit-learn 'ray[train]' \
    'torchtitan==0.3.*' hypothesis torchdata peft lightning tensorboard wandb nbconvert ipykernel matplotlib
"$python" -m pip install --quiet --no-deps --only-binary=:all: 'megatron-core==0.16.*' ||
    echo "no megatron-core for this Python: test_megatron.py is skipped"
