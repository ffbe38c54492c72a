#!/usr/bin/env bash
# Makes an image (an OCI archive, which docker load, podman load and skopeo read) without a daemon: Debian 12, Python, a wheel of Consist.
# Usage: launch/package/image.sh WHEEL [--extra EXTRA] [--root FOLDER] [--output FILE] [--level N]      as root, with mmdebstrap or debootstrap
#   --extra     of the wheel: cuda13 for GPUs (about 2.5 GB of NVIDIA's libraries)
#   --root      where the root file system is made: build/image-root. One that is there is thrown away
#   --output    the archive: build/packages/consist-image.tar
#   --level     of compression, 1 to 9: 6
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=launch/package
source $here/common.sh

wheel="" extra="" root=build/image-root output=build/packages/consist-image.tar level=6
while [ $# -gt 0 ]; do
  case $1 in
    --extra) extra=${2:?--extra needs a name}; shift ;;
    --root) root=${2:?--root needs a folder}; shift ;;
    --output) output=${2:?--output needs a file}; shift ;;
    --level) level=${2:?--level needs a number}; shift ;;
    *.whl) wheel=$1 ;;
    *) echo "image: '$1' is no wheel and no option; see the head of this script" >&2; exit 2 ;;
  esac
  shift
done
[ -f "$wheel" ] || { echo "image: there is no wheel '$wheel'; launch/package/wheel.sh makes one" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "image: only root can make a root file system; use Containerfile with a builder of images instead" >&2; exit 2; }
can_make_root || { echo "image: there is neither mmdebstrap nor debootstrap (Debian: apt-get install mmdebstrap)" >&2; exit 2; }
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(commit_time)}

make_root bookworm "$root"
cp "$wheel" $here/image_contents.sh "$root/tmp/"
run_in_root "$root" sh /tmp/image_contents.sh "/tmp/$(basename "$wheel")" "$extra"
rm -f "$root/tmp/"* "$root/etc/resolv.conf" "$root/etc/machine-id"

layers=$(mktemp -d)
trap 'rm -rf "$layers"' EXIT
tar --create --file "$layers/layer.tar" --directory "$root" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --numeric-owner --exclude=./proc/* --exclude=./sys/* \
  --exclude=./dev/* --exclude=./made .
mkdir -p "$(dirname "$output")"
python3 $here/oci_archive.py --layer "$layers/layer.tar" --level "$level" --output "$output"
echo "$output"
