"""Reads the safetensors files that ReferenceLibrary of tests/weights wrote, with the reference library: check_safetensors.py FOLDER."""
import json
import sys
from pathlib import Path

import numpy as np
from safetensors import deserialize, safe_open

folder = Path(sys.argv[1])
expected = json.loads((folder / "expected.json").read_text())


def bits(dtype, data):
    return np.frombuffer(data, {"F32": np.uint32, "BF16": np.uint16, "I32": np.int32}[dtype]).tolist()


def check(path, names):
    found = dict(deserialize(path.read_bytes()))
    assert set(found) == set(names), (path, sorted(found), sorted(names))
    for name in names:
        tensor = found[name]
        assert tensor["dtype"] == expected[name]["dtype"], (name, tensor["dtype"])
        assert tensor["shape"] == expected[name]["shape"], (name, tensor["shape"])
        assert bits(tensor["dtype"], tensor["data"]) == expected[name]["bits"], name
    with safe_open(path, framework="np") as opened:
        assert opened.metadata() == {"format": "pt"}, opened.metadata()
        assert set(opened.keys()) == set(names)
        for name in names:
            if expected[name]["dtype"] == "F32":
                array = opened.get_tensor(name)
                assert array.view(np.uint32).ravel().tolist() == expected[name]["bits"], name


check(folder / "single" / "model.safetensors", list(expected))
index = json.loads((folder / "sharded" / "model.safetensors.index.json").read_text())
assert set(index["weight_map"]) == set(expected)
files = set(index["weight_map"].values())
assert len(files) > 1, files
for file in files:
    check(folder / "sharded" / file, [name for name, where in index["weight_map"].items() if where == file])
assert index["metadata"]["total_size"] == sum(len(t["bits"]) * (2 if t["dtype"] == "BF16" else 4) for t in expected.values())
print("equal")
