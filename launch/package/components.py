"""Libraries of others that a package of Consist holds: their versions, licences, and the bill of materials (CycloneDX)."""
from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Component:
    """A library, by the Debian package that it was compiled from."""

    name: str
    package: str
    licence: str  # as SPDX writes it
    holding: str  # how the package has it
    version: str = ""


COMPONENTS = (
    Component("hdf5", "libhdf5-dev", "BSD-3-Clause", "in lib/libconsist.so"),
    Component("libaec", "libaec-dev", "BSD-2-Clause", "in lib/libconsist.so"),
    Component("openssl", "libssl-dev", "Apache-2.0", "in lib/libconsist.so (SHA-256)"),
    Component("zlib", "zlib1g-dev", "Zlib", "in lib/libconsist.so and plugins"),
    Component("spdlog", "libspdlog-dev", "MIT", "headers"),
    Component("fmt", "libfmt-dev", "MIT", "headers"),
    Component("boost", "libboost-dev", "BSL-1.0", "headers, and Program_options in bin/consist"),
    Component("nlohmann-json", "nlohmann-json3-dev", "MIT", "headers"),
    Component("tomlplusplus", "libtomlplusplus-dev", "MIT", "headers"),
    Component("pcre2", "libpcre2-dev", "BSD-3-Clause", "in bin/consist and plugins"),
    Component("utf8proc", "libutf8proc-dev", "MIT", "in bin/consist and plugins"),
    Component("chart.js", "libjs-chart.js", "MIT", "in bin/consist, for reports"),
    Component("onednn", "libdnnl2", "Apache-2.0", "beside"),
    Component("opencl-icd-loader", "ocl-icd-libopencl1", "BSD-2-Clause", "beside, for onednn"),
    Component("libgomp", "libgomp1", "GPL-3.0-or-later WITH GCC-exception-3.1", "beside"),
)


def installed(cuda: str) -> list[Component]:
    """Returns the components with the versions of this system. `cuda` is the toolkit's version; empty: without it."""
    found = []
    for one in COMPONENTS:
        asked = subprocess.run(["dpkg-query", "-W", "-f=${Version}", one.package], capture_output=True, text=True,
                               timeout=60, check=False)
        if asked.returncode != 0:
            raise SystemExit(f"package: the bill of materials needs the version of {one.package}, which dpkg-query does "
                             "not know: build packages on Debian or Ubuntu (launch/setup.sh)")
        found.append(replace(one, version=asked.stdout))
    if cuda:
        found.append(Component("cuda-runtime", "", "LicenseRef-NVIDIA-CUDA-EULA", "in the cuda device and in NCCL's transports",
                               cuda))
    return found


def licences(components: list[Component]) -> str:
    """Returns the licence texts as Debian has them, one after the other."""
    parts = []
    for one in components:
        if not one.package:
            parts.append(f"{one.name} {one.version} ({one.holding}): NVIDIA's CUDA Toolkit EULA lets programs hold this part; it "
                         "is in NVIDIA's documents of that toolkit.\n")
            continue
        path = Path("/usr/share/doc", one.package, "copyright")
        if not path.is_file():
            raise SystemExit(f"package: {path}, the licence of {one.name}, is not there: install {one.package}")
        text = path.read_text(encoding="utf-8", errors="replace")
        parts.append(f"{'=' * 100}\n{one.name} {one.version} ({one.holding})\n{'=' * 100}\n{text}")
    return "\n".join(parts)


def bill_of_materials(version: str, components: list[Component]) -> str:
    """Returns CycloneDX 1.6 as JSON. Holds no time and no serial number, so that two builds are equal."""
    return json.dumps({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "consist", "version": version,
                                   "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": [{
            "type": "library",
            "name": one.name,
            "version": one.version,
            "licenses": [{"expression": one.licence}],
            **({"purl": f"pkg:deb/debian/{one.package}@{one.version}"} if one.package else {}),
            "properties": [{"name": "consist:holding", "value": one.holding}],
        } for one in components],
    }, indent=1) + "\n"
