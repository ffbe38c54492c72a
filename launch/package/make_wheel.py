"""Packs a tree of files into a wheel (launch/package/wheel.sh): metadata, licences, the bill of materials, RECORD.

Nothing is compressed: auditwheel packs it once more.

The same tree gives the same bytes: names are sorted, times are SOURCE_DATE_EPOCH.
"""
from __future__ import annotations

import argparse
import base64
import hashlib
import os
import time
import zipfile
from pathlib import Path

import components

PYPROJECT = {
    "summary": "Plugin-based training of LLMs that compares configurations: parallel strategy, transport, precision",
    "requires": ['PyYAML>=5.4', 'tomli>=1.1; python_version < "3.11"'],
    "extras": {
        "frames": ["pandas>=1.5", "h5py>=3.7"],
        "parquet": ["pyarrow==26.0.*"],
        "hub": ["huggingface_hub>=0.23"],
    },
    # By the toolkit's major version: libraries that the cuda device and the transports load.
    "cuda": {
        "12": ["nvidia-cublas-cu12>=12.8,<13", "nvidia-cuda-nvrtc-cu12>=12.8,<13", "nvidia-cudnn-cu12>=9.8,<10",
               "nvidia-nccl-cu12>=2.26,<3"],
        "13": ["nvidia-cublas>=13.0,<14", "nvidia-cuda-nvrtc>=13.0,<14", "nvidia-cudnn-cu13>=9.12,<10",
               "nvidia-nccl-cu13>=2.27,<3"],
    },
}


def metadata(version: str) -> str:
    lines = ["Metadata-Version: 2.4", "Name: consist", f"Version: {version}", f"Summary: {PYPROJECT['summary']}",
             "License-Expression: Apache-2.0", "License-File: LICENSE", "License-File: third-party.txt",
             "Requires-Python: >=3.9", "Keywords: training,LLM,distributed,benchmark",
             "Classifier: Operating System :: POSIX :: Linux", "Classifier: Programming Language :: C++",
             "Classifier: Typing :: Typed", "Description-Content-Type: text/markdown"]
    lines += [f"Requires-Dist: {need}" for need in PYPROJECT["requires"]]
    extras = dict(PYPROJECT["extras"], **{f"cuda{major}": needs for major, needs in PYPROJECT["cuda"].items()})
    for extra, needs in sorted(extras.items()):
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {need}; extra == "{extra}"' for need in needs]
    readme = Path("README.md").read_text(encoding="utf-8")
    return "\n".join(lines) + "\n\n" + readme


def files_of(tree: Path) -> list[tuple[str, Path]]:
    """Returns files by their names in the wheel. Links to folders are left out: what they show is there by itself."""
    found = []
    for folder, _, names in os.walk(tree):
        for name in names:
            path = Path(folder, name)
            found.append((path.relative_to(tree).as_posix(), path))
    return sorted(found)


def write(wheel: zipfile.ZipFile, name: str, data: bytes, executable: bool, record: list[str]) -> None:
    moment = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))
    entry = zipfile.ZipInfo(name, moment[:6])
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    wheel.writestr(entry, data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    record.append(f"{name},sha256={digest},{len(data)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, required=True, help="what comes into site-packages")
    parser.add_argument("--version", required=True)
    parser.add_argument("--cuda", default="", help="version of the toolkit; none: without the cuda device")
    parser.add_argument("--output", type=Path, required=True, help="folder of the wheel")
    arguments = parser.parse_args()

    version = arguments.version
    info = f"consist-{version}.dist-info"
    described = components.installed(arguments.cuda)
    texts = {
        "METADATA": metadata(version),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: consist launch/package\nRoot-Is-Purelib: false\n"
                 "Tag: py3-none-linux_x86_64\n",
        "entry_points.txt": "[console_scripts]\nconsist = consist._program:main\n",
        "licenses/LICENSE": Path("LICENSE").read_text(encoding="utf-8"),
        "licenses/third-party.txt": components.licences(described),
        "sboms/consist.cdx.json": components.bill_of_materials(version, described),
    }
    record: list[str] = []
    path = arguments.output / f"consist-{version}-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, source in files_of(arguments.tree):
            write(wheel, name, source.read_bytes(), os.access(source, os.X_OK), record)
        for name, text in sorted(texts.items()):
            write(wheel, f"{info}/{name}", text.encode(), False, record)
        record.append(f"{info}/RECORD,,")
        write(wheel, f"{info}/RECORD", ("\n".join(record) + "\n").encode(), False, [])
    print(path)


if __name__ == "__main__":
    main()
