#!/bin/sh
# Puts Consist into a Debian system that is to become an image. Run in it as root by Containerfile and image.sh.
# Usage: image_contents.sh WHEEL [EXTRA]      EXTRA: cuda13 brings cuBLAS, cuDNN, NVRTC and NCCL
set -eu
wheel=$1 extra=${2:-}
export DEBIAN_FRONTEND=noninteractive
if ! dpkg-query -W python3-venv ca-certificates openssl > /dev/null 2>&1; then
  apt-get -q update
  apt-get -q install -y --no-install-recommends python3-venv ca-certificates openssl
fi
python3 -m venv /opt/consist
/opt/consist/bin/pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile --retries 5 "$wheel${extra:+[$extra]}"
ln -sf /opt/consist/bin/consist /usr/local/bin/consist
# Amazon's libfabric and the AWS OFI plugin of NCCL go here (LD_LIBRARY_PATH names these folders): copied in, or mounted from the node.
mkdir -p /opt/amazon/efa/lib /opt/amazon/ofi-nccl/lib /results
id consist > /dev/null 2>&1 || useradd --uid 10001 --create-home consist
chown consist: /results
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache /var/log/* "$wheel"
