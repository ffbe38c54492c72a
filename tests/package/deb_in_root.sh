#!/usr/bin/env bash
# Installs Debian packages in a new root file system of a Debian release.
# There an ordinary user runs the quickstart's comparison, of 20 steps or STEPS.
# Usage: tests/package/deb_in_root.sh PACKAGES SUITE FOLDER [STEPS]     (PACKAGES is a folder; FOLDER is made, or used again)
# Ends with 0 and a line with the seconds that installing and comparing took; 77 where no root file system can be made here.
set -euo pipefail
packages=$1 suite=$2 root=$3 steps=${4:-20}
source "$(dirname "${BASH_SOURCE[0]}")/new_system.sh"
new_system "$suite" "$root"
cp "$packages"/consist_*.deb "$packages"/libconsist-dev_*.deb "$root/tmp/"
cat > "$root/home/user/try.sh" <<'END'
set -eu
cd
consist --version
consist compare --model llama-tiny,qwen3-tiny --strategy ddp --ranks 1,2 --precision fp32,bf16 \
  --dataset text --sequence 256 --global-batch 8 --steps "$1" --learning-rate 5e-4 --constant.warmup 5 \
  --evaluate-every "$1" --sample-every "$1" --sample-prompt "The train" --repeats 1 --output runs/quickstart
python3 -c 'import consist; print(consist.__name__, "is imported")'
test -s /usr/share/man/man1/consist.1.gz
test -f /usr/include/consist/strategy.h
END
begin=$(date +%s)
run_in_root "$root" sh -c 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends /tmp/*.deb'
id=$(chroot "$root" id -u user)
RUN_AS=$id RUN_HOME=/home/user run_in_root "$root" timeout 600 sh /home/user/try.sh "$steps"
echo "$suite: installed and compared in $(($(date +%s) - begin)) s"
