#!/usr/bin/env python3
"""Writes unicode_classes.h: what Unicode 16 adds to the general categories of Unicode 14.

Usage: make_unicode_classes.py > unicode_classes.h      (needs Python 3.11, whose unicodedata is of Unicode 14, and unicodedata2==16.0.0)

The library tokenizers (0.22.1 and 0.23.3, with Oniguruma 6.9.10) matches \\p{...} by Unicode 16: asked for all code points, it gives
unicodedata2 16.0.0's categories without exception. Debian 12's PCRE2 10.42 is of Unicode 14.
"""

import sys
import unicodedata

import unicodedata2

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp".split()
NAMES = CATEGORIES + ["L", "M", "N", "P", "S", "Z"]
HEAD = """// Made by make_unicode_classes.py: what Unicode 16 adds to the general categories of Unicode 14, as ranges for a set of PCRE2.
#pragma once

#include <string_view>

namespace consist::tokenizer {

struct UnicodeClass {
  std::string_view name;
  std::string_view newer;  ///< what came since Unicode 14
  std::string_view whole;  ///< not empty where characters left the category since: all of it
};

inline constexpr UnicodeClass unicode_classes[] = {"""


def ranges(points):
    text, first, last = [], None, None
    for point in [*sorted(points), None]:
        if last is not None and point == last + 1:
            last = point
            continue
        if first is not None:
            text.append(f"\\x{{{first:x}}}" + (f"-\\x{{{last:x}}}" if last > first else ""))
        first = last = point
    return text


def literal(parts):
    lines, line = [], ""
    for part in parts:
        if len(line) + len(part) > 105:
            lines.append(line)
            line = ""
        line += part
    if line:
        lines.append(line)
    return "\n     ".join(f'R"({line})"' for line in lines) if lines else '""'


def main():
    if unicodedata.unidata_version != "14.0.0" or unicodedata2.unidata_version != "16.0.0":
        sys.exit(__doc__)
    old = {name: set() for name in NAMES}
    new = {name: set() for name in NAMES}
    for tables, category_of in ((old, unicodedata.category), (new, unicodedata2.category)):
        for point in range(0x110000):
            category = category_of(chr(point))
            if category in tables:
                tables[category].add(point)
                tables[category[0]].add(point)
    print(HEAD)
    for name in NAMES:
        whole = new[name] if old[name] - new[name] else set()
        print(f'    {{"{name}", {literal(ranges(new[name] - old[name]))},\n     {literal(ranges(whole))}}},')
    print("};\n\n}  // namespace consist::tokenizer")


if __name__ == "__main__":
    main()
