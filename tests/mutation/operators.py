"""Errors at random places of the sources: an operator and a line are drawn, weighted by lines of code."""

import re

FOLDERS = ["core", "plugins/strategies", "plugins/devices/cpu"]

# Lines that only people read, that declare, or that refuse bad input by a message.
NOT_CODE = re.compile(
    r"^\s*(//|#|///|using |namespace |template|class |struct |public:|private:|protected:|\}|case .*:$|default:$|return \"|CONSIST_PLUGIN|extern)"
    r"|throw |Error\(|complain\(|refuse\(|require\(|log::|printf|text|describe|message \+=|warn|note\(|static_assert|constexpr const char|ofstream"
)

# Name, and pairs of a pattern and what it becomes; one occurrence is changed.
OPERATORS = [
    ("a comparison is turned", [(r" < ", " >= "), (r" > ", " <= "), (r" <= ", " > "), (r" >= ", " < "), (r" == ", " != "), (r" != ", " == ")]),
    ("a bound is off by one", [(r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > ")]),
    ("+ becomes -", [(r" \+ ", " - "), (r" - ", " + "), (r" \+= ", " -= "), (r" -= ", " += ")]),
    ("* becomes /", [(r"(?<=[\w)\]]) \* (?=[\w(])", " / "), (r" / ", " * ")]),
    ("a constant is off by one", [(r"(?<![\w.])(\d+)(?![\w.'])", lambda m: str(int(m.group(1)) + 1))]),
    ("&& becomes ||", [(r" && ", " || "), (r" \|\| ", " && ")]),
    ("a condition is negated", [(r"\bif \((?!const|auto)(.+)\)(?= \{$| return| continue|$)", lambda m: f"if (!({m.group(1)}))")]),
    ("a statement is dropped", [(r"^(\s*)(?!return|break|continue|const |auto |for|while|if|else|\})[\w.>\-\[\]()*:]+(\(.*\)| [+\-|]?= .+);$", lambda m: m.group(1) + ";")]),
    ("true becomes false", [(r"\btrue\b", "false"), (r"\bfalse\b", "true")]),
]


def code_lines(text):
    """Numbers of lines that may be changed."""
    lines, inside = text.splitlines(), False
    for number, line in enumerate(lines):
        if "constexpr" in line and "=" not in line:
            continue
        if line.strip() and not NOT_CODE.search(line) and '"' not in line:
            yield number


def draw(tree, random):
    """(name, path, old, new, what it does): old and new are whole lines, with neighbours where one alone does not stand once."""
    files = sorted(str(p.relative_to(tree)) for folder in FOLDERS for p in (tree / folder).rglob("*.cpp"))
    texts = {file: (tree / file).read_text() for file in files}
    places = [(file, number) for file in files for number in code_lines(texts[file])]
    while True:
        file, number = random.choice(places)
        what, changes = random.choice(OPERATORS)
        lines = texts[file].splitlines()
        code = lines[number].split("//")[0]  # code_lines() gives none with a string
        found = [(m, new) for pattern, new in changes for m in re.finditer(pattern, code.rstrip())]
        if not found:
            continue
        match, new = random.choice(found)
        changed = lines[number][: match.start()] + (new(match) if callable(new) else new) + lines[number][match.end():]
        first, last = number, number + 1
        while texts[file].count("\n".join(lines[first:last])) > 1:
            first, last = max(0, first - 1), min(len(lines), last + 1)
        old = "\n".join(lines[first:last])
        new_text = "\n".join(lines[first:number] + [changed] + lines[number + 1:last])
        return f"{file}:{number + 1}: {what}: {lines[number].strip() if changed.strip() == ';' else changed.strip()}", file, old, new_text, what
