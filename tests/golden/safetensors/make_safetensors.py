#!/usr/bin/env python3
"""Makes the files beside it with the reference library, for tests/weights. Rerun: pip install -r tests/requirements.txt, then this.

python.safetensors   tensors of several dtypes, shapes and special values
sharded/             two files and their index, as transformers writes them
expected.json        what must be read: dtype, shape, and the elements as f32 bits (integers as such)
"""
import json
import struct
from pathlib import Path

import numpy as np
from safetensors import TensorSpec, serialize_file

HERE = Path(__file__).parent


def bf16_bits(values):
    """Rounds to nearest, ties to even."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def as_f32_bits(dtype, raw):
    if dtype == "bfloat16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).tolist()
    if dtype == "float16":
        return np.frombuffer(raw, np.float16).astype(np.float32).view(np.uint32).tolist()
    if dtype == "float32":
        return np.frombuffer(raw, np.uint32).tolist()
    return np.frombuffer(raw, dtype).tolist()


def entry(dtype, shape, raw):
    return {"dtype": dtype, "shape": list(shape), "data": raw}


def save(tensors, path, metadata):
    buffers = {name: np.frombuffer(t["data"] or b"\0", np.uint8) for name, t in tensors.items()}  # alive until the file is written
    specs = {name: TensorSpec(dtype=t["dtype"], shape=t["shape"], data_ptr=buffers[name].ctypes.data, data_len=len(t["data"]))
             for name, t in tensors.items()}
    serialize_file(specs, path, metadata)


def main():
    random = np.random.default_rng(7)
    normal = random.standard_normal((5, 7)).astype(np.float32)
    special = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, 1e-45, -1e-40, 3.4e38, 65504.0, 6e-8], np.float32)
    halves = np.concatenate([np.arange(0, 0x7C01, 97, dtype=np.uint16), np.arange(0x8000, 0xFC01, 97, dtype=np.uint16)])
    tensors = {
        "model.embed_tokens.weight": entry("float32", normal.shape, normal.tobytes()),
        "special": entry("float32", special.shape, special.tobytes()),
        "scalar": entry("float32", (), np.float32(2.5).tobytes()),
        "empty": entry("float32", (0, 4), b""),
        "bf16": entry("bfloat16", (3, 5, 2), bf16_bits(random.standard_normal(30) * 100).tobytes()),
        "f16": entry("float16", halves.shape, halves.tobytes()),
        "größe/层.weight": entry("bfloat16", (3,), bf16_bits([1, 2, 3]).tobytes()),
        "positions": entry("int64", (4,), np.arange(4, dtype=np.int64).tobytes()),
    }
    save(tensors, HERE / "python.safetensors", {"format": "pt", "note": "made by make_safetensors.py"})

    shards = HERE / "sharded"
    shards.mkdir(exist_ok=True)
    files = {
        "model-00001-of-00002.safetensors": {"a.weight": entry("float32", (2, 2), np.arange(4, dtype=np.float32).tobytes())},
        "model-00002-of-00002.safetensors": {"b.weight": entry("bfloat16", (2,), bf16_bits([0.5, -3]).tobytes()),
                                             "c.weight": entry("float16", (1,), struct.pack("<e", 0.1))},
    }
    for name, content in files.items():
        save(content, shards / name, {"format": "pt"})
    size = sum(len(tensor["data"]) for content in files.values() for tensor in content.values())
    index = {"metadata": {"total_size": size}, "weight_map": {tensor: name for name, content in files.items() for tensor in content}}
    (shards / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")

    expected = {name: {"dtype": t["dtype"], "shape": t["shape"], "values": as_f32_bits(t["dtype"], t["data"])}
                for name, t in tensors.items()}
    (HERE / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
