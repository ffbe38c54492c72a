"""Files of other trainers as configurations of Consist: ``consist import FILE`` and ``--from FILE`` (docs/readers.md).

A reader goes over the keys of a file by a table of rules (rules.py) into a target (target.py), which collects options,
what is said of each key, and all refusals. formats.py recognises which reader a file needs.
"""
from __future__ import annotations
