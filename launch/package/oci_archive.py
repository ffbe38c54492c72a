"""Packs the tar of a root file system into an OCI image archive (image specification 1.0), without a daemon."""
from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import time
from pathlib import Path
from typing import Any

CONFIGURATION = {
    "User": "consist",
    "WorkingDir": "/results",
    "Entrypoint": ["consist"],
    "Env": [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LD_LIBRARY_PATH=/opt/amazon/ofi-nccl/lib:/opt/amazon/efa/lib",
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ],
}


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def described(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": size}


class Archive:
    """The archive that is written: a tar with files of one date."""

    def __init__(self, path: Path, moment: int) -> None:
        self._tar = tarfile.open(path, "w")
        self._moment = moment

    def add(self, name: str, source: io.BufferedIOBase, size: int) -> None:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mtime, entry.mode = size, self._moment, 0o644
        self._tar.addfile(entry, source)

    def add_json(self, name: str, value: Any) -> None:
        data = json.dumps(value).encode()
        self.add(name, io.BytesIO(data), len(data))

    def add_blob(self, kind: str, value: Any) -> dict[str, Any]:
        data = json.dumps(value).encode()
        digest = hashlib.sha256(data).hexdigest()
        self.add(f"blobs/sha256/{digest}", io.BytesIO(data), len(data))
        return described(kind, digest, len(data))

    def close(self) -> None:
        self._tar.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layer", type=Path, required=True)
    parser.add_argument("--level", type=int, choices=range(1, 10), default=6, help="of compression")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    moment = int(os.environ["SOURCE_DATE_EPOCH"])
    plain = sha256(arguments.layer)
    packed = arguments.layer.with_suffix(".tar.gz")
    with arguments.layer.open("rb") as source, packed.open("wb") as target:
        # No name and no time in the header: two runs give the same bytes.
        with gzip.GzipFile(filename="", mode="wb", compresslevel=arguments.level, fileobj=target, mtime=0) as zipped:
            shutil.copyfileobj(source, zipped, 1 << 20)
    digest, size = sha256(packed), packed.stat().st_size

    archive = Archive(arguments.output, moment)
    with packed.open("rb") as layer:
        archive.add(f"blobs/sha256/{digest}", layer, size)
    configuration = archive.add_blob("config.v1+json", {
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment)),
        "architecture": "amd64",
        "os": "linux",
        "config": CONFIGURATION,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{plain}"]},
    })
    manifest = archive.add_blob("manifest.v1+json", {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": configuration,
        "layers": [described("layer.v1.tar+gzip", digest, size)],
    })
    manifest["annotations"] = {"org.opencontainers.image.ref.name": "consist:latest"}
    archive.add_json("index.json", {"schemaVersion": 2, "manifests": [manifest]})
    archive.add_json("oci-layout", {"imageLayoutVersion": "1.0.0"})
    archive.close()


if __name__ == "__main__":
    main()
