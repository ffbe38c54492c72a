#!/usr/bin/env bash
# Installs a wheel in a new root file system of a Debian release, as an ordinary user and without a compiler,.
# There it runs the quickstart's comparison, of 20 steps or STEPS.
# Usage: tests/package/wheel_in_root.sh WHEEL SUITE FOLDER [STEPS]     (root, mmdebstrap or debootstrap, and the network are needed; FOLDER is made, or used again)
# Ends with 0 and a line with the seconds that installing and comparing took; 77 where no root file system can be made here.
set -euo pipefail
wheel=$1 suite=$2 root=$3 steps=${4:-20}
source "$(dirname "${BASH_SOURCE[0]}")/new_system.sh"
new_system "$suite" "$root"
rm -rf "$root/home/user/"*
cp "$wheel" "$root/home/user/"
cat > "$root/home/user/try.sh" <<'END'
set -eu
cd
! command -v g++ gcc cc > /dev/null || { echo "there is a compiler in this root file system" >&2; exit 1; }
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check --retries 5 ./consist-*.whl
v/bin/consist --version
v/bin/consist plugins parquet > said.txt  # pyarrow is an extra
grep -q 'it needs libparquet.so.*, which is not on this machine' said.txt || { cat said.txt >&2; exit 1; }
v/bin/consist compare --model llama-tiny,qwen3-tiny --strategy ddp --ranks 1,2 --precision fp32,bf16 \
  --dataset text --sequence 256 --global-batch 8 --steps "$1" --learning-rate 5e-4 --constant.warmup 5 \
  --evaluate-every "$1" --sample-every "$1" --sample-prompt "The train" --repeats 1 --output runs/quickstart \
  --report runs/quickstart/report.html
test -s runs/quickstart/report.html
test -f "$(v/bin/consist sdk --prefix)/include/consist/strategy.h"
END
begin=$(date +%s)
id=$(chroot "$root" id -u user)
RUN_AS=$id RUN_HOME=/home/user run_in_root "$root" timeout 600 sh /home/user/try.sh "$steps"
echo "$suite: installed and compared in $(($(date +%s) - begin)) s"
