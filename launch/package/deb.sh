#!/usr/bin/env bash
# Makes Debian packages of a build: consist, consist-cuda where the build has CUDA, libconsist-dev.
# Usage: launch/package/deb.sh [--build FOLDER] [--built] [--output FOLDER] [--level N]
#   --build     a build folder to use or to make: build/deb. Packages are for the distribution on which it was built
#   --built     it is built: do not look whether something must be built again
#   --output    where they go: build/packages
#   --level     of compression, 0 to 9: 6. 1 takes a fifth of the time; the files grow by a fifth
# Prints the packages' paths, one a line. Two runs on one build give the same bytes: times are those of the last commit (or SOURCE_DATE_EPOCH).
# MAINTAINER="NAME <ADDRESS>" in the environment names who is responsible for the packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=launch/package
source $here/common.sh

build=build/deb output=build/packages built=false level=6
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=${2:?--build needs a folder}; shift ;;
    --built) built=true ;;
    --output) output=${2:?--output needs a folder}; shift ;;
    --level) level=${2:?--level needs a number}; shift ;;
    *) echo "deb: unknown argument '$1'; see the head of this script" >&2; exit 2 ;;
  esac
  shift
done
for tool in dpkg-deb dpkg-shlibdeps objdump patchelf; do
  command -v $tool > /dev/null || { echo "deb: there is no $tool: apt-get install dpkg-dev binutils patchelf" >&2; exit 2; }
done
if [ ! -f "$build/CMakeCache.txt" ]; then
  # Paths of the building machine stay out of the files.
  cmake -G Ninja -S . -B "$build" -DCONSIST_BUILD_TESTS=OFF -DCONSIST_UNITY=ON -DCMAKE_CXX_FLAGS="-ffile-prefix-map=$PWD=." >&2
fi
$built || cmake --build "$build" >&2

export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(commit_time)}
version=$(project_version)
architecture=$(dpkg --print-architecture)
maintainer=${MAINTAINER:-Consist maintainers <maintainers@consist.invalid>}
toolkit=$(toolkit_version "$build" | cut -d. -f1,2)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

elf_files() { find "$1" -type f -exec sh -c 'head -c 4 "$1" | grep ELF > /dev/null' _ {} \; -print | sort; }

# move PACKAGE PATH...: from the installed tree to a package's.
move() {
  local to=$stage/$1 path
  shift
  for path; do
    mkdir -p "$to/$(dirname "$path")"
    mv "$stage/all/$path" "$to/$path"
  done
}

# What dpkg would have its tools do to files: no paths of this machine, stripped, not executable without need.
finish_binaries() {
  local file paths
  for file in $(elf_files "$stage/all"); do
    case $file in
      */device-cuda.so) paths=/usr/local/cuda/lib64 ;;  # where NVIDIA's packages put a toolkit
      *) paths= ;;                                      # /usr/lib is searched anyway
    esac
    if [ -n "$paths" ]; then patchelf --set-rpath "$paths" "$file"; else patchelf --remove-rpath "$file"; fi
    strip --strip-unneeded --remove-section=.comment --remove-section=.note "$file"
    case $file in *.so) chmod 644 "$file" ;; esac
  done
  chmod +x "$stage/all/usr/share/consist/examples/install.sh"
}

split() {
  cd "$stage/all"
  # pyarrow's libraries are no package of Debian.
  rm -rf usr/lib/consist/arrow usr/lib/consist/plugins/dataset-parquet.so
  find . -name __pycache__ -prune -exec rm -rf {} +
  find . -name .gitignore -delete
  find usr/share/doc -type f -empty -delete
  local file path
  # The transports carry CUDA's copies inside, or load NCCL at run time: they work without.
  for file in $(elf_files usr); do
    if objdump -p "$file" | grep -E 'NEEDED +lib(cu|nv|nccl)' > /dev/null; then  # all of it: an early end fails the pipe
      move consist-cuda "$file"
    fi
  done
  for path in usr/include usr/lib/cmake usr/share/consist/examples usr/share/consist/conformance usr/libexec/consist; do
    [ ! -e "$path" ] || move libconsist-dev "$path"
  done
  # import consist, by Debian's Python.
  mkdir -p usr/lib/python3/dist-packages
  mv usr/lib/consist/python/consist usr/lib/python3/dist-packages/
  ln -s ../../python3/dist-packages/consist usr/lib/consist/python/consist
  gzip -9n usr/share/man/man1/*.1
  cd "$source"
  mkdir -p "$stage/consist"
  cp -a "$stage/all/usr" "$stage/consist/"
}

# documents PACKAGE: copyright and changelog, where Debian has them.
documents() {
  local folder=$stage/$1/usr/share/doc/$1
  mkdir -p "$folder"
  cp $here/debian/copyright "$folder/copyright"
  if [ -r /usr/share/doc/libjs-chart.js/copyright ]; then
    { printf '\nChart.js\n========\n\n'; cat /usr/share/doc/libjs-chart.js/copyright; } | sed 's/^Format:/Its-format:/' >> "$folder/copyright"
  fi
  {
    printf 'consist (%s) unstable; urgency=medium\n\n  * Package of commit %s.\n\n' "$version" "$(git rev-parse --short HEAD 2> /dev/null || echo unknown)"
    printf ' -- %s  %s\n' "$maintainer" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
  } | gzip -9n > "$folder/changelog.gz"
  if [ -f "$here/debian/$1.lintian-overrides" ]; then
    install -D -m 644 "$here/debian/$1.lintian-overrides" "$stage/$1/usr/share/lintian/overrides/$1"
  fi
}

# dependencies PACKAGE: packages of the libraries that its files need, with the versions whose symbols they use.
dependencies() {
  local files
  mapfile -t files < <(elf_files "$stage/$1/usr")
  [ ${#files[@]} -gt 0 ] || return 0
  mkdir -p "$stage/work/debian"
  printf 'Source: consist\n\nPackage: %s\nArchitecture: any\n' "$1" > "$stage/work/debian/control"
  # Libraries of this source have no package yet, NVIDIA's may have none here.
  (cd "$stage/work" && dpkg-shlibdeps --ignore-missing-info -O -l"$stage/consist/usr/lib" -l"$stage/consist-cuda/usr/lib" -l/usr/local/cuda/lib64 \
    -l/usr/local/cuda/lib64/stubs "${files[@]/#/-e}" 2> "$stage/shlibdeps.log") | sed -n 's/^shlibs:Depends=//p'
}

package() {
  local name=$1 root=$stage/$1 depends size
  documents "$name"
  depends=$(dependencies "$name") || { cat "$stage/shlibdeps.log" >&2; exit 1; }
  mkdir -p "$root/DEBIAN"
  find "$root" -type d -exec chmod 755 {} +
  size=$(find "$root/usr" -type f -printf '%s\n' | awk '{total += int(($1 + 1023) / 1024)} END {print total}')
  sed -e "s|@VERSION@|$version|; s|@ARCHITECTURE@|$architecture|; s|@MAINTAINER@|$maintainer|; s|@SIZE@|$size|; s|@TOOLKIT@|$toolkit|" \
    -e "s|@DEPENDS_MORE@|${depends:+, $depends}|; s|@DEPENDS@|$depends|" -e '/^Depends:/ s/, *,/,/g; /^Depends:/ s/, *$//' \
    "$here/debian/$name.control" > "$root/DEBIAN/control"
  [ -z "$(find "$root/usr/lib" -maxdepth 1 -name '*.so')" ] || echo 'activate-noawait ldconfig' > "$root/DEBIAN/triggers"
  (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums)
  dpkg-deb --root-owner-group -Zxz "-z$level" --build "$root" "$stage/" > /dev/null
  mv "$stage/${name}_${version}_$architecture.deb" "$output/"
  echo "$output/${name}_${version}_$architecture.deb"
}

source=$PWD
umask 022
DESTDIR=$stage/all cmake --install "$build" --prefix /usr > /dev/null
finish_binaries
split
mkdir -p "$output"
package consist
if [ -d "$stage/consist-cuda" ]; then package consist-cuda; else echo "deb: consist-cuda is left out: $build has no CUDA" >&2; fi
package libconsist-dev
