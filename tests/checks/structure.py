#!/usr/bin/env python3
"""Checks of the source tree that no compiler makes. Usage: tests/checks/structure.py [--draw] [ROOT]

  rooms     no include of core/ or launch/ points from a room to a higher one (ROOMS and LAUNCH_ROOMS, lowest first), but for KNOWN_ARROWS
  size      no folder of core/, plugins/, models/, datasets/, launch/ or tests/ has more than MOST_FILES sources
  parts     plugins/, models/ and datasets/ include public headers (consist/...), their own folder, and what FOLDERS_OF_SEVERAL names
  op names  nothing outside core/ops and the devices' kernels compares the name of an op: it asks for a trait (consist/op_traits.h)
  bodies    a file of kernels whose bodies depend on the architecture asks whether they are there (hopper_code.cuh) before it makes one
  origin    nothing compares Tag::inserted_by, which is for people
  kernels   each kernel of cpu and cuda is registered once (CONSIST_KERNEL), for an op that the other device has a kernel for, too
  functions no function of C++ or CUDA has more than MOST_LINES lines, from its head to its last brace
  words     no doc comment begins with "Of", "What", "Whether", "How" or "Which", and no file's first line with one of FIRST_LINE: each begins with
            a verb or a noun. In PLAIN folders and in documents none of
            ODD_WORDS stands where the field has a word of its own (docs/glossary.md)

Prints what is wrong, one line each, and exits with 1; with --draw it prints the arrows between the rooms instead."""
import os
import re
import sys

# Lowest first: a room includes headers of its own and of rooms before it. Public headers (core/include) belong to none.
ROOMS = ["base", "expressions", "network", "job", "collectives", "program", "ops", "cost", "passes", "frozen", "experts", "compile", "lower", "archive", "weights", "checkpoint", "config", "plugin",
         "plan", "connect", "state", "record", "training", "reference", "interpreter", "prove"]
# The same of launch/, above all of core/.
LAUNCH_ROOMS = ["import", "cli", "start", "cluster", "predict", "measure", "compare", "search", "residual", "view", "verdict", "generate", "doctor", "templates", "commands"]

# (from, to): why it is still there.
KNOWN_ARROWS = {}

# Code that several parts of a kind share lies in plugins/<kind>/common, or here.
FOLDERS_OF_SEVERAL = {
    "plugins/devices/kernels": "kernels' arguments and formulas, the same on every device",
    "plugins/devices/common/measured_matmul.h": "the choice between two ways of multiplying, for every device",
    "plugins/devices/cpu/kernel_library.h": "zero3-offload updates on the host: cuda's device runs the CPU's kernels",
    "plugins/transports/loaded_library.h": "libraries that are opened at run time",
    "plugins/transports/nccl": "transports of GPUs stand on NCCL",
    "plugins/transports/rdma": "what EFA, InfiniBand and RoCE need of a machine",
    "plugins/strategies/zero": "what zero2 and zero3-offload share",
    "plugins/precisions/bf16": "fp8 trains in bf16 but for its linears",
    "models/decoder": "what the dense decoders share",
    "datasets/jinja": "chat templates as programs",
    "datasets/packing": "documents packed into sequences",
    "datasets/records": "rows with a text or a conversation",
    "datasets/tokenizer": "texts as tokens",
}

MOST_FILES = 40
MOST_LINES = 70
LARGE_FOLDERS = {"core/include/consist": "the public headers, which third parties include by one name"}

# Folders whose comments were read for plain words: what is added there stays plain.
PLAIN = ("core/include/", "core/expressions/", "core/ops/", "core/passes/", "core/experts/", "core/lower/", "plugins/strategies/", "plugins/schedules/", "models/")
# First words of a comment that has no subject: of doc comments everywhere, of those in PLAIN folders, and of a file's first line.
STARTS = re.compile(r"///<?\s*(Of|What|Whether|How|Which)\b")
STARTS_PLAIN = re.compile(r"///<?\s*(Of|What|Whether|How|Which|That|Who|Whose|Whom|Whoever|Nobody)\b")
FIRST_LINE = re.compile(r"//\s*(Of|What|Whether|That|Who|Which|How|Where|When)\b")
ODD_WORDS = {
    r"travel(?:s|led|ling)?": "sent, or in flight",
    r"stretch(?:es)?": "prefill and decode, period or slice",
    r"room (?:for|of)|no room|lacks? room": "capacity",
    r"nobody|whoever": "the one that acts: no rank, the emitter",
    r"for people": "the place where it is shown",
    r"it says itself": "the op's placement rule decides",
    r"all the same (?:which|to)": "any is valid",
}
ODD = re.compile(r"\b(" + "|".join(ODD_WORDS) + r")\b", re.IGNORECASE)
# Diaries of what was measured and decided are quoted as they were written.
DOCUMENTS_AS_WRITTEN = ("docs/results/", "docs/decisions/")

SOURCES = (".h", ".cpp", ".cu", ".cuh")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')

# The ways in which an op's name has been compared: of an instruction, by a helper that takes it, or by looking one up beside it.
NAME_COMPARED = [
    re.compile(r'\bop(?:\(\))?\s*(?:->|\.)\s*name\(\)\s*[!=]='),
    re.compile(r'[!=]=\s*[\w.>()\[\]-]*\bop(?:\(\))?\s*(?:->|\.)\s*name\(\)'),
    re.compile(r'\bop\s*[!=]=\s*"\w'),
    re.compile(r'"\w+"\s*[!=]=\s*op\b'),
    re.compile(r'\bop(?:\(\))?\s*(?:->|\.)\s*name\(\)\s*\.\s*(?:starts_with|ends_with|find|compare)\b'),
    re.compile(r'\b(?:is|is_op|is_flat|op_is)\([^()]*,\s*"\w+"\)'),
    re.compile(r'(?:find|get)\([^;]*\bop->name\(\)\)?\s*\+'),
    re.compile(r'(?:find|get)\([^;]*\+\s*(?:std::string\()?[\w.]*\bop->name\(\)'),
]
ORIGIN_COMPARED = re.compile(r"\binserted_by\s*[!=]=(?!\s*(?:nullptr|'))|[!=]=\s*[\w.>()\[\]-]*\binserted_by\b")
OWN_NAMES = ("core/ops/", "core/interpreter/")  # the interpreter has a formula for each op, as a device has a kernel
KERNELS = re.compile(r"^plugins/devices/.*(kernels/|make_kernel)")
# Figures of machine files are kept by the name of an op, "*" being all others: that is a key of a file, not a property of an op.
NOT_OPS = {"core/cost/machine_file.cpp", "core/cost/cost_model.cpp", "core/plan/machine_choice.cpp", "core/program/float8_scaling.h",
           "core/include/consist/float8_scaling.h"}


def files_of(root, folders):
    for folder in folders:
        for parent, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                if name.endswith(SOURCES):
                    path = os.path.join(parent, name)
                    yield os.path.relpath(path, root), open(path, encoding="utf-8").read().splitlines()


def arrows(root):
    """(room, room of the included header) -> the places."""
    found = {}
    for path, lines in files_of(root, ["core"]):
        room = path.split("/")[1]
        if room == "include":
            room = "public headers"
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if match and match[1].startswith("core/"):
                to = match[1].split("/")[1]
                if to != room:
                    found.setdefault((room, to), []).append(f"{path}:{number}")
    return found


def check_rooms(root):
    found = arrows(root)
    for (room, to), places in sorted(found.items()):
        if room not in ROOMS or to not in ROOMS:
            missing = room if room not in ROOMS else to
            yield f"{places[0]}: '{missing}' is no room of core; add it to ROOMS where it belongs, or include a public header"
        elif ROOMS.index(to) > ROOMS.index(room) and (room, to) not in KNOWN_ARROWS:
            for place in places:
                yield f"{place}: core/{room} includes core/{to}, which is above it"
    for arrow in KNOWN_ARROWS:
        if arrow not in found:
            yield f"tests/checks/structure.py: nothing in core/{arrow[0]} includes core/{arrow[1]} any more: take it out of KNOWN_ARROWS"


def check_launch_rooms(root):
    for path, lines in files_of(root, ["launch"]):
        room = path.split("/")[1]
        if path.count("/") == 1 or (room not in LAUNCH_ROOMS):
            if path != "launch/main.cpp":
                yield f"{path}: lies in no room of launch: {', '.join(LAUNCH_ROOMS)}"
            continue
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            to = match[1].split("/")[1] if match and match[1].startswith("launch/") else room
            if to not in LAUNCH_ROOMS or LAUNCH_ROOMS.index(to) > LAUNCH_ROOMS.index(room):
                yield f"{path}:{number}: launch/{room} includes launch/{to}, which is above it"


def check_size(root):
    count = {}
    for path, _ in files_of(root, ["core", "plugins", "models", "datasets", "launch", "tests"]):
        count[os.path.dirname(path)] = count.get(os.path.dirname(path), 0) + 1
    for folder, files in sorted(count.items()):
        if files > MOST_FILES and folder not in LARGE_FOLDERS:
            yield f"{folder}: {files} sources, of which {MOST_FILES} are the most: which subject has a folder of its own?"


def check_parts(root):
    for path, lines in files_of(root, ["plugins", "models", "datasets"]):
        folder = os.path.dirname(path)
        part = "/".join(folder.split("/")[:3 if folder.startswith("plugins/") else 2])
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            header = match[1]
            if header.startswith("core/"):
                yield f"{path}:{number}: includes {header}; parts include public headers (consist/...) only"
            elif header.startswith(("plugins/", "models/", "datasets/")) and not header.startswith(part + "/"):
                shared = header.startswith("/".join(part.split("/")[:2]) + "/common/") or any(
                    header == f or header.startswith(f + "/") for f in FOLDERS_OF_SEVERAL)
                if not shared:
                    yield f"{path}:{number}: includes {header} of another part; what several need lies in a folder of its own"


def check_op_names(root):
    for path, lines in files_of(root, ["core", "plugins", "launch"]):
        if path.startswith(OWN_NAMES) or KERNELS.match(path) or path in NOT_OPS:
            continue
        for number, line in enumerate(lines, 1):
            code = line.split("//")[0]
            if any(pattern.search(code) for pattern in NAME_COMPARED):
                yield f"{path}:{number}: compares the name of an op; ask for a trait (consist/op_traits.h): {code.strip()}"


def check_origin(root):
    for path, lines in files_of(root, ["core", "plugins", "launch"]):
        for number, line in enumerate(lines, 1):
            if ORIGIN_COMPARED.search(line.split("//")[0]):
                yield f"{path}:{number}: compares Tag::inserted_by, which is for people: {line.strip()}"


def check_bodies(root):
    for path, lines in files_of(root, ["plugins/devices/cuda"]):
        if path.endswith("/hopper_code.cuh"):
            continue
        code = [line.split("//")[0] for line in lines]
        depends = [n for n, line in enumerate(code, 1) if re.match(r"\s*#\s*(?:if|ifdef|ifndef|elif)\b.*__CUDA_ARCH", line)]
        if depends and not any("require_bodies(" in line for line in code):
            yield (f"{path}:{depends[0]}: a kernel has no body for some architectures, and nothing refuses it there: "
                   "call hopper::require_bodies() where the kernel is made")


def check_kernels(root):
    places = {"cpu": {}, "cuda": {}}
    for device, ops in places.items():
        for path, lines in files_of(root, [f"plugins/devices/{device}"]):
            for number, line in enumerate(lines, 1):
                if match := re.match(r"CONSIST_KERNEL\((\w+),", line):
                    op, place = match[1], f"{path}:{number}"
                    if ops.setdefault(op, place) != place:
                        yield f"{place}: {device} has a kernel for '{op}' already, in {ops[op]}"
    for device, other in (("cpu", "cuda"), ("cuda", "cpu")):
        for op, place in places[device].items():
            if op not in places[other]:
                yield f"{place}: {other} has no kernel for '{op}'"


# What hides braces: comments, texts, characters and the preprocessor's lines.
HIDDEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*',
                    re.S | re.M)
NO_FUNCTION = re.compile(r"\s*(?:namespace|class|struct|enum|union|extern)\b|.*=\s*$", re.S)


def check_guards(root):
    """What a plugin's part is called by goes through its guard: one that a guard leaves out is never called."""
    headers = "\n".join("\n".join(lines) for _, lines in files_of(root, ["core/include/consist"]))
    for path, lines in files_of(root, ["core/plugin"]):
        for guard in re.finditer(r"^class \w+ final : public Guarded<(\w+)>.*?^};", "\n".join(lines), re.S | re.M):
            interface = re.search(r"^class CONSIST_API " + guard[1] + r" (?!;).*?^};", headers, re.S | re.M)
            for name in re.findall(r"virtual [^;{~]*?(\w+)\(", interface[0]) if interface else []:
                if not re.search(rf"\b{name}\(", guard[0]):
                    yield f"{path}: the guard of {guard[1]} does not pass {name}() on"


def functions_of(text):
    """(first line, lines, head) of every function that stands in no other. The lines of raw texts, which are data, do not count."""
    text = HIDDEN.sub(lambda hidden: ("\v" if hidden[0].startswith("R") else "\n") * hidden[0].count("\n"), text)
    scopes, since, line, texts = [], 0, 1, 0
    for mark in re.finditer(r"[{};\n\v]", text):
        if mark[0] in "\n\v":
            line += 1
            texts += mark[0] == "\v"
            continue
        if mark[0] == "{":
            head = text[since:mark.start()]
            is_function = ")" in head and not NO_FUNCTION.match(head) and not any(scope[0] for scope in scopes)
            scopes.append((is_function, line - head.lstrip().count("\n"), texts, " ".join(head.split())))
        elif mark[0] == "}" and scopes:
            is_function, first, before, head = scopes.pop()
            if is_function:
                yield first, line - first + 1 - (texts - before), head
        since = mark.end()


def check_functions(root):
    for path, lines in files_of(root, ["core", "plugins", "models", "datasets", "launch", "tests"]):
        for first, count, head in functions_of("\n".join(lines)):
            if count > MOST_LINES:
                yield f"{path}:{first}: a function of {count} lines, of which {MOST_LINES} are the most: which part of it has a name? {head[:80]}"


def better_than(word):
    return next(better for pattern, better in ODD_WORDS.items() if re.fullmatch(pattern, word, re.IGNORECASE))


def documents_of(root):
    """The .md files that users read, and their lines without those of fenced blocks."""
    paths = [name for name in sorted(os.listdir(root)) if name.endswith(".md")]
    for folder in ("docs", "plugins", "models", "datasets"):
        for parent, _, names in os.walk(os.path.join(root, folder)):
            paths += [os.path.relpath(os.path.join(parent, name), root) for name in sorted(names) if name.endswith(".md")]
    for path in paths:
        if not path.startswith(DOCUMENTS_AS_WRITTEN):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                text = re.sub(r"^```.*?^```", lambda block: re.sub(r"[^\n]", "", block[0]), file.read(), flags=re.MULTILINE | re.DOTALL)
            yield path, text.split("\n")


def check_words(root):
    for path, lines in files_of(root, ["core", "plugins", "models", "datasets", "launch", "tests"]):
        plain = path.startswith(PLAIN)
        for number, line in enumerate(lines, 1):
            before = lines[number - 2] if number > 1 else ""
            match = (STARTS_PLAIN if plain else STARTS).search(line) or (FIRST_LINE.match(line) if number == 1 else None)
            if match and not (re.match(r"\s*///", before) and re.match(r"\s*///", line)):
                yield f"{path}:{number}: a comment begins with '{match[1]}'; begin with a verb or a noun"
            odd = ODD.search(line.split("//", 1)[1]) if plain and "//" in line else None
            if odd:
                yield f"{path}:{number}: a comment has '{odd[1]}'; better: {better_than(odd[1])}"
    for path, lines in documents_of(root):
        for number, line in enumerate(lines, 1):
            odd = ODD.search(re.sub(r"`[^`]*`", "", line))
            if odd:
                yield f"{path}:{number}: '{odd[1]}'; better: {better_than(odd[1])}"


def draw(root):
    for (room, to), places in sorted(arrows(root).items(), key=lambda a: tuple(ROOMS.index(r) if r in ROOMS else -1 for r in a[0])):
        mark = " (upwards)" if room in ROOMS and to in ROOMS and ROOMS.index(to) > ROOMS.index(room) else ""
        print(f"{room:12} -> {to:12} {len(places):3}{mark}")


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    root = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    if "--draw" in sys.argv:
        return draw(root)
    wrong = [*check_rooms(root), *check_launch_rooms(root), *check_size(root), *check_parts(root), *check_op_names(root), *check_bodies(root), *check_origin(root), *check_kernels(root), *check_guards(root),
             *check_functions(root), *check_words(root)]
    for line in wrong:
        print(line)
    print(f"{len(wrong)} places are wrong" if wrong else "the structure is as it should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
