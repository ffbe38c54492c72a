"""Makes archives that hurt a reader which trusts them: python hostile_archives.py GOOD.h5 FOLDER SECRET

Each is a copy of the archive GOOD.h5 with one change. SECRET is the path of a file that none of them may bring into an output.
Prints the names, one a line; names that begin with "ok-" hold data that a reader may show."""
import json
import os
import shutil
import sys

import h5py
import numpy as np

good, folder, secret = sys.argv[1:4]
made = {}


def archive(name):
    """Registers a change of a copy."""
    def register(change):
        made[name] = change
        return change
    return register


def replaced(f, name, *args, **kwargs):
    del f[name]
    return f.create_dataset(name, *args, **kwargs)


def text(f, name, value):
    replaced(f, name, data=value, dtype=h5py.string_dtype())


def config(f, **changes):
    values = json.loads(f["config"].asstr()[()])
    values.update(changes)
    text(f, "config", json.dumps(values))


@archive("external-storage-of-events")
def _(f):
    replaced(f, "events/text", shape=(3,), dtype="S1024", external=[(secret, 0, 3072)])


@archive("external-storage-of-a-column")
def _(f):
    replaced(f, "steps/loss", shape=(4,), dtype="f8", external=[(secret, 0, 32)])


@archive("external-link-of-a-text")
def _(f):
    del f["config"]
    f["config"] = h5py.ExternalLink("other.h5", "/secret")


@archive("external-link-of-a-group")
def _(f):
    del f["events"]
    f["events"] = h5py.ExternalLink("other.h5", "/events")


@archive("soft-link")
def _(f):
    del f["result"]
    f["result"] = h5py.SoftLink("/environment")


@archive("soft-link-to-nothing")
def _(f):
    f["steps/more"] = h5py.SoftLink("/nothing/there")


@archive("soft-link-to-itself")
def _(f):
    f["loop"] = h5py.SoftLink("/loop")


@archive("user-defined-link")
def _(f):  # h5py makes none: an external link's class in the file is changed below
    f["strange"] = h5py.ExternalLink("XXUDLINKXX", "/x")


@archive("group-within-itself")
def _(f):
    f["steps/again"] = f["steps"]


@archive("groups-in-a-ring")
def _(f):
    a, b = f.create_group("a"), f.create_group("b")
    a["b"], b["a"] = b, a


@archive("groups-without-end")
def _(f):
    group = f
    for _ in range(200):
        group = group.create_group("g")


@archive("virtual-dataset")
def _(f):
    layout = h5py.VirtualLayout(shape=(3,), dtype="S1024")
    layout[:] = h5py.VirtualSource("other.h5", "rows", shape=(3,))
    del f["events/text"]
    f.create_virtual_dataset("events/text", layout)


@archive("virtual-dataset-of-a-column")
def _(f):
    layout = h5py.VirtualLayout(shape=(4,), dtype="f8")
    layout[:] = h5py.VirtualSource("other.h5", "column", shape=(4,))
    del f["steps/loss"]
    f.create_virtual_dataset("steps/loss", layout)


@archive("rows-without-end")
def _(f):
    replaced(f, "steps/loss", shape=(1 << 60,), chunks=(1024,), dtype="f8")


@archive("events-without-end")
def _(f):
    for name, kind in (("time", "f8"), ("kind", "S32"), ("text", "S1024")):
        replaced(f, "events/" + name, shape=(1 << 33,), chunks=(64,), dtype=kind)


@archive("deflated-bomb")
def _(f):
    replaced(f, "timeline", shape=(1 << 45,), chunks=(65536,), dtype="u1", compression="gzip")


@archive("chunk-without-end")
def _(f):
    replaced(f, "steps/loss", shape=(4,), maxshape=(None,), chunks=((1 << 28),), dtype="f8")


@archive("wide-choices")
def _(f):
    group = f.require_group("experts")
    for name in list(group):
        del group[name]
    group["step"] = np.arange(3)
    wide = h5py.h5t.array_create(h5py.h5t.STD_I32LE, (20000, 20000))
    h5py.h5d.create(group.id, b"choices", wide, h5py.h5s.create_simple((3,), (3,)))


@archive("filter-of-a-plugin")
def _(f):
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((4,))
    properties.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, ())  # Blosc
    del f["steps/loss"]
    h5py.h5d.create(f["steps"].id, b"loss", h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple((4,), (4,)), properties)


@archive("texts-where-numbers-belong")
def _(f):
    replaced(f, "steps/loss", data=[b"a", b"b", b"c"])


@archive("a-table-where-a-column-belongs")
def _(f):
    replaced(f, "steps/loss", data=np.ones((4, 4)))


@archive("compound-where-a-column-belongs")
def _(f):
    replaced(f, "steps/loss", data=np.zeros(4, dtype=[("a", "f8"), ("b", "S8")]))


@archive("references-where-texts-belong")
def _(f):
    replaced(f, "events/text", data=[f["config"].ref] * 3, dtype=h5py.ref_dtype)


@archive("region-references-where-numbers-belong")
def _(f):
    replaced(f, "steps/loss", data=[f["steps/step"].regionref[:1]] * 3, dtype=h5py.regionref_dtype)


@archive("many-texts-where-one-belongs")
def _(f):
    replaced(f, "config", data=["x" * 100] * 4096, dtype=h5py.string_dtype())


@archive("numbers-where-a-text-belongs")
def _(f):
    replaced(f, "config", data=np.arange(100))


@archive("strings-of-any-length-where-fixed-ones-belong")
def _(f):
    replaced(f, "events/text", data=["a", "b", "c"], dtype=h5py.string_dtype())


@archive("a-group-where-a-text-belongs")
def _(f):
    del f["config"]
    f.create_group("config")


@archive("a-dataset-where-a-group-belongs")
def _(f):
    del f["steps"]
    f["steps"] = np.arange(4)


@archive("a-version-of-many-numbers")
def _(f):
    f.attrs["consist_archive_version"] = np.full(8000, 2, dtype="i4")


@archive("a-version-that-is-a-text")
def _(f):
    f.attrs["consist_archive_version"] = "2"


@archive("a-status-of-many-texts")
def _(f):
    f.attrs["status"] = np.array([b"finished" * 8] * 900)


@archive("a-huge-attribute")
def _(f):
    f.create_group("big").attrs.create("reason", np.zeros(4 << 20, dtype="u1"))


@archive("attributes-without-end")
def _(f):
    for n in range(2000):
        f["config"].attrs[f"a{n}"] = n


@archive("names-without-end")
def _(f):
    for n in range(20000):
        f["steps"].create_group(f"g{n}")


@archive("ok-control-characters")
def _(f):
    evil = "\x1b]0;owned\x07\x1b[2J\u202ereversed\nfaked line"
    text(f, "environment", json.dumps({"host": evil, "device": evil}))
    config(f, model=evil, strategy=evil)
    f.attrs.modify("reason", np.bytes_(evil.encode()))
    f["steps"].create_dataset("\x1b[31mred", data=np.ones(4))


@archive("ok-times-that-are-none")
def _(f):
    for name, value in (("time", np.nan), ("time", np.inf), ("time", 1e300)):
        f["events/" + name][...] = value
    f["steps/seconds"][...] = np.nan
    f["steps/tokens"][...] = -np.inf


@archive("ok-counts-that-are-none")
def _(f):
    config(f, steps=-5, evaluate_every=0.5, ranks=-1, batch=1e300)
    f["steps/step"][...] = np.array([2**63 - 1] + [3] * (len(f["steps/step"]) - 1))


@archive("ok-deep-json")
def _(f):
    text(f, "environment", "[" * 200000 + "]" * 200000)
    text(f, "result", '{"a":' * 100000 + "1" + "}" * 100000)
    config(f, model=[[[[["deep"]]]]])


@archive("ok-json-of-other-types")
def _(f):
    text(f, "environment", json.dumps({"host": 5, "device": [1], "planned_for": "x", "plugins": 3}))
    text(f, "topology", json.dumps({"axes": [1, None, {"name": {}}]}))
    text(f, "result", json.dumps({"planned_bytes": "many", "bound_problem": 7, "processors": {"own": "x"}}))
    text(f, "comm", json.dumps({"steps": "x", "axes": [3]}))
    text(f, "program", json.dumps({"collectives": {"a": 1}, "largest": 5}))


@archive("a-timeline-of-unequal-columns")
def _(f):
    timeline = {"source": "measured", "measured_steps": 1, "simulation": {}, "classes": [
        {"rank": 0, "ranks": 1, "step_seconds": 1, "parts": {"products": 1},
         "instructions": {"instruction": [0, 1, 2], "op": ["a"], "begin": [], "seconds": [1]}, "memory": {}}]}
    replaced(f, "timeline", data=np.frombuffer(json.dumps(timeline).encode(), dtype="u1"))


@archive("names-that-are-paths")
def _(f):
    config(f, plugin_options={"../../x": {"../y": secret}, "csv": {"file": secret}}, archive=secret, overwrite=True)


other = os.path.join(folder, "other.h5")
with h5py.File(other, "w") as f, open(secret, "rb") as planted:
    content = planted.read()
    f["secret"] = content.decode()
    f["rows"] = np.array([content] * 3, dtype="S1024")
    f["column"] = np.arange(4.0)
    f["events/text"] = np.array([content] * 3, dtype="S1024")
    f["events/kind"] = np.array([b"x"] * 3, dtype="S32")
    f["events/time"] = np.arange(3.0)

for name, change in made.items():
    path = os.path.join(folder, name + ".h5")
    shutil.copy(good, path)
    # The newest format alone has attributes of that size.
    with h5py.File(path, "r+", libver="latest" if name == "a-huge-attribute" else None) as f:
        change(f)

# Changes of bytes.
whole = open(good, "rb").read()


def written(name, content):
    made[name] = None
    with open(os.path.join(folder, name + ".h5"), "wb") as out:
        out.write(content)


path = os.path.join(folder, "user-defined-link.h5")
content = open(path, "rb").read()
at = content.find(b"XXUDLINKXX")
link = content.rfind(b"strange", 0, at)
assert at > link > 0, "the link is not where it was looked for"
if content[link - 2] == 64 or content[link - 3] == 64:  # the class of a link message, before its name
    place = link - 2 if content[link - 2] == 64 else link - 3
    content = content[:place] + b"\xc8" + content[place + 1:]
open(path, "wb").write(content)

written("cut-in-half", whole[:len(whole) // 2])
written("cut-in-its-head", whole[:60])
written("ok-behind-a-user-block", b"\0" * 512 + whole)
written("empty", b"")
written("zeros-in-the-middle", whole[:len(whole) // 2] + b"\0" * 2048 + whole[len(whole) // 2 + 2048:])
print("\n".join(sorted(made)))
