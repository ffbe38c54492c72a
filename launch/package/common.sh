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

project_version() { sed -nE 's/^project\(Consist VERSION ([0-9.]+).*/\1/p' CMakeLists.txt; }

# toolkit_version BUILD: the version of the CUDA toolkit of a build folder; nothing for one without.
toolkit_version() { sed -nE 's/^set\(CMAKE_CUDA_COMPILER_VERSION "([0-9.]+)"\).*/\1/p' "$1"/CMakeFiles/*/CMakeCUDACompiler.cmake 2> /dev/null || true; }

# Seconds of the last commit; outside of a checkout those of the newest file of this tree.
commit_time() {
  git log -1 --format=%ct 2> /dev/null || find . -path ./build -prune -o -type f -printf '%T@\n' | sort -n | tail -1 | cut -d. -f1
}

# make_root SUITE FOLDER: a new root file system of that Debian release with Python and certificates, without a compiler. Needs root and mmdebstrap
# or debootstrap; its words go to FOLDER.log. CONSIST_ROOTS names a folder of such root file systems: one that is
# there is laid below, or copied where that cannot be. Who sets it unmounts FOLDER.
make_root() {
  local kept=${CONSIST_ROOTS:-}
  rm -rf "$2"
  if [ -n "$kept" ] && [ -f "$kept/$1/made" ]; then
    # What changes goes into a folder beside: thousands of files need be neither copied nor removed.
    mkdir -p "$2" "$2.changes" "$2.work"
    mount -t overlay overlay -o "lowerdir=$kept/$1,upperdir=$2.changes,workdir=$2.work" "$2" 2> /dev/null || cp -a "$kept/$1/." "$2"
    return
  fi
  local packages=python3-venv,ca-certificates,openssl
  if command -v mmdebstrap > /dev/null; then  # debootstrap unpacks each package of the base twice: twice the processor's time
    timeout 600 mmdebstrap --mode=root --variant=minbase --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr --include="$packages,usr-is-merged" \
      "$1" "$2" "deb http://deb.debian.org/debian $1 main" > "$2.log" 2>&1 || return
  else
    timeout 600 debootstrap --variant=minbase --include="$packages" "$1" "$2" > "$2.log" 2>&1 || return
  fi
  touch "$2/made"
}

# run_in_root FOLDER COMMAND...: as root in there, or as the user whose number RUN_AS has, with this system's name servers and certificates.
run_in_root() {
  local root=$1 status=0
  shift
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  mount -t proc proc "$root/proc"
  chroot ${RUN_AS:+--userspec="$RUN_AS:$RUN_AS"} "$root" /usr/bin/env -i HOME="${RUN_HOME:-/root}" PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt "$@" || status=$?
  umount "$root/proc"
  return $status
}

# can_make_root: root, and a tool for it.
can_make_root() { [ "$(id -u)" = 0 ] && { command -v mmdebstrap || command -v debootstrap; } > /dev/null; }
