#!/usr/bin/env bash
# Where a CUDA toolkit is installed: brings the header-only cuDNN frontend, a pinned Python wheel, into the build folder and prints its folder, for
# CUDNN_FRONTEND_ROOT. Prints nothing where there is no toolkit or the folder is named already. Usage: launch/cuda_headers.sh BUILD
set -euo pipefail
build=$1
version=1.32.0
[ -z "${CUDNN_FRONTEND_ROOT:-}" ] || exit 0
command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || [ -x "${CUDA_HOME:-/nowhere}/bin/nvcc" ] || exit 0
venv="$build/cuda-venv"
if [ ! -f "$venv/cudnn-frontend-$version" ]; then
  mkdir -p "$build"
  if ! { python3 -m venv --clear "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "nvidia-cudnn-frontend==$version"; } >&2; then
    echo "setup: nvidia-cudnn-frontend $version cannot be installed; the cuda device is left out of this build" >&2
    exit 0
  fi
  touch "$venv/cudnn-frontend-$version"
fi
echo "$(cd "$venv" && pwd)"/lib/python3*/site-packages
