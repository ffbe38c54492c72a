#!/usr/bin/env bash
# Packs a build for a machine with GPUs that lacks the libraries to build there. Usage: tests/gpu/pack.sh BUILD OUT.tar.xz
# The archive holds absolute paths, because tests know where they were built; tests/gpu/run.sh --packed unpacks it to the same place.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$1" && pwd)
out=$2
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

mkdir -p "$stage$build/bin" "$stage$build/lib" "$stage$source/tests" "$stage$source/datasets/text"
for program in consist test_cuda test_cuda_code test_kernels test_parity test_conformance_transport test_transport test_commands bench_kernels; do
  [ -x "$build/bin/$program" ] && cp "$build/bin/$program" "$stage$build/bin/"
done
cp -r "$build/lib/." "$stage$build/lib/"
rm -rf "$stage$build/lib/consist/arrow" "$stage$build"/lib/consist/plugins/dataset-parquet.so  # 60 MB that no GPU needs
cp -rL "$build/share" "$stage$build/share"
cp -r "$source/tests/golden" "$source/tests/gpu" "$stage$source/tests/"
cp "$source/CMakePresets.json" "$stage$source/"
for data in "$source"/datasets/text/*/; do cp -r "$data" "$stage$source/datasets/text/"; done
find "$stage" -type f \( -name '*.so' -o -path '*/bin/*' \) -exec strip --strip-debug {} + 2>/dev/null || true

# Shared libraries that another distribution has in other versions or not at all. Those of the C library, the compiler's and CUDA's come from there.
mkdir -p "$stage$build/carried"
find "$build/bin" "$build/lib" -type f \( -perm -u+x -o -name '*.so' \) -exec ldd {} + 2>/dev/null | awk '/=> \// {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libgcc_s|libstdc\+\+|libcu[A-Za-z]*|libcudnn[^/]*|libnccl|libnv[^/]*|libarrow[^/]*|libparquet[^/]*|libconsist[^.]*)\.so' |
  while read -r library; do cp -L "$library" "$stage$build/carried/"; done
echo "$build" > "$stage$source/tests/gpu/packed-build"
tar -C "$stage" -cf - . | xz -T0 -1 > "$out"
ls -lh "$out"
