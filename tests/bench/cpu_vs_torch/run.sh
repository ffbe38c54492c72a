#!/usr/bin/env bash
# Trains llama-32m with Consist and with PyTorch in turn and prints the ratios. Usage: tests/bench/cpu_vs_torch/run.sh [--rounds 3] [--check] ...
# Needs a finished build. PyTorch comes from CONSIST_TORCH_PYTHON, or is installed to build/venv-torch (its wheels bring CUDA: about 7 GB).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
build=${CONSIST_BUILD:-build}
if [ ! -x "$build/bin/consist" ]; then
  echo "there is no $build/bin/consist: build first (launch/setup.sh, then cmake), or set CONSIST_BUILD" >&2
  exit 2
fi
python=${CONSIST_TORCH_PYTHON:-}
if [ -z "$python" ]; then
  requirements=tests/bench/cpu_vs_torch/requirements.txt
  python=$build/venv-torch/bin/python
  if ! cmp -s "$requirements" "$build/venv-torch/installed.txt"; then
    python3 -m venv --clear "$build/venv-torch"
    "$build/venv-torch/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
    cp "$requirements" "$build/venv-torch/installed.txt"
  fi
fi
exec "$python" tests/bench/cpu_vs_torch/side_by_side.py --consist "$build/bin/consist" "$@"
