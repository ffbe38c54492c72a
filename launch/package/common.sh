# For the scripts of packages.

# Prints nvcc's path; fails where there is none.
find_nvcc() {
  local nvcc
  for nvcc in "${CUDACXX:-}" "$(command -v nvcc || true)" "${CUDA_HOME:-/nowhere}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
    if [ -n "$nvcc" ] && [ -x "$nvcc" ]; then
      echo "$nvcc"
      return 0
    fi
  done
  return 1
}

# python_tools FOLDER REQUIREMENTS: a virtual environment with these packages, made where it is missing or has others.
python_tools() {
  cmp -s "$2" "$1/installed.txt" && return 0
  python3 -m venv --clear "$1"
  "$1/bin/pip" install --quiet --disable-pip-version-check -r "$2"
  cp "$2" "$1/installed.txt"
}

# Seconds of the last commit; outside of a checkout those of the newest file of this tree.
commit_time() {
  git log -1 --format=%ct 2> /dev/null || find . -path ./build -prune -o -type f -printf '%T@\n' | sort -n | tail -1 | cut -d. -f1
}
