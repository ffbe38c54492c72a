#!/usr/bin/env python3
"""Checks that the links of documents lead somewhere. Usage: tests/checks/links.py ROOT [FOLDER...]

Looks at the .md files below the FOLDERs of ROOT (all of ROOT by default) and in ROOT itself: a relative link must name a file or folder that is
there, and what follows # a heading of that page. Prints what does not, one line each, and exits with 1."""
import os
import re
import sys

LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return FENCE.sub("", file.read())


def anchors_of(path):
    """As GitHub makes them of headings."""
    names = set()
    for heading in re.findall(r"^#+ +(.*)$", text_of(path), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        same = sum(1 for known in names if known == name or re.fullmatch(re.escape(name) + r"-\d+", known))
        names.add(name if same == 0 else f"{name}-{same}")
    return names


def pages_of(root, folders):
    yield from (os.path.join(root, name) for name in sorted(os.listdir(root)) if name.endswith(".md"))
    for folder in folders:
        for parent, _, names in os.walk(os.path.join(root, folder)):
            yield from (os.path.join(parent, name) for name in sorted(names) if name.endswith(".md"))


def broken_links(page):
    for link in LINK.findall(CODE.sub("code", text_of(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(target):
            yield f"{page}: {link} is not there"
        elif anchor and target.endswith(".md") and anchor not in anchors_of(target):
            yield f"{page}: {link}: that page has no such heading"


def main():
    root = sys.argv[1]
    folders = sys.argv[2:] or sorted(name for name in os.listdir(root) if os.path.isdir(os.path.join(root, name)))
    pages = list(dict.fromkeys(pages_of(root, folders)))
    broken = [line for page in pages for line in broken_links(page)]
    for line in broken:
        print(line)
    print(f"{len(pages)} pages, {len(broken)} links lead nowhere")
    sys.exit(1 if broken or not pages else 0)


if __name__ == "__main__":
    main()
