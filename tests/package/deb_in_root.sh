#!/usr/bin/env bash
# Installs Debian packages in a new root file system of a Debian release and runs the quickstart's comparison there as an ordinary user.
# Usage: tests/package/deb_in_root.sh PACKAGES SUITE FOLDER     (PACKAGES is a folder; FOLDER is made, or used again)
# Ends with 0 and a line with the seconds that installing and comparing took; 77 where no root file system can be made here.
set -euo pipefail
packages=$1 suite=$2 root=$3
source "$(dirname "${BASH_SOURCE[0]}")/../../launch/package/common.sh"
if [ "$(id -u)" != 0 ] || ! command -v debootstrap > /dev/null; then
  echo "skipped: root and debootstrap are needed to make a root file system of $suite"
  exit 77
fi
if [ ! -f "$root/made" ] && ! make_root "$suite" "$root"; then  # a mirror that does not answer is no failure of the packages
  echo "skipped: debootstrap made no root file system of $suite:"
  tail -3 "$root.log"
  exit 77
fi
chroot "$root" id -u user > /dev/null 2>&1 || chroot "$root" useradd --create-home user
cp "$packages"/consist_*.deb "$packages"/libconsist-dev_*.deb "$root/tmp/"
cat > "$root/home/user/try.sh" <<'END'
set -eu
cd
consist --version
consist compare --model llama-tiny,qwen3-tiny --strategy ddp --ranks 1,2 --precision fp32,bf16 \
  --dataset text --sequence 256 --global-batch 8 --steps 20 --learning-rate 5e-4 --constant.warmup 5 \
  --evaluate-every 20 --sample-every 20 --sample-prompt "The train" --repeats 1 --output runs/quickstart
python3 -c 'import consist; print(consist.__name__, "is imported")'
test -s /usr/share/man/man1/consist.1.gz
test -f /usr/include/consist/strategy.h
END
begin=$(date +%s)
run_in_root "$root" sh -c 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends /tmp/*.deb'
id=$(chroot "$root" id -u user)
RUN_AS=$id RUN_HOME=/home/user run_in_root "$root" timeout 600 sh /home/user/try.sh
echo "$suite: installed and compared in $(($(date +%s) - begin)) s"
