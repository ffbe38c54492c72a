"""Recognition of formats, and limits of what is read."""
from __future__ import annotations

import os
from typing import Any

import pytest
from readers.reading import Reading

from consist.readers.messages import DataError, UsageError, as_text, in_quotes, printable, shown
from consist.readers.syntax import parse_json, parse_toml, parse_yaml, plain_scalar, syntax_of

HEAD = "distributed_type: FSDP\n"


@pytest.mark.parametrize("text, syntax", [
    ("", ""), ("just words\n", ""), ("# a remark\n{", "json"), ("#!/bin/bash\nx: 1", "script"), ("#!/usr/bin/env python3\n", "python"),
    ("import torch\n", "python"), ("from a import b\n", "python"), ("--num-layers 4\n", "script"), ("---\na: 1", "yaml"),
    ("export A=1\n", "script"), ("A=1\n", "script"), ("A+=1\n", "script"), ("torchrun x.py --a 1\n", "script"),
    ("echo x.py --a\n", "script"), ("[model]\nname = 'x'\n", "toml"), ("name = 'x'\n", "toml"), ("a:\n  b: 1\n", "yaml"),
    ('"""\nname = 1\n', "toml"), ("// remark\n{}", "json"), ("  [a]\n", ""),
])
def test_syntax_is_guessed(text: str, syntax: str) -> None:
    assert syntax_of(text) == syntax


@pytest.mark.parametrize("text, value", [
    ("1e-5", 1e-5), ("1E+3", 1000.0), ("1_000", 1000), ("+5", 5), ("-3", -3), (".5", 0.5), ("1.", 1.0), ("~", None), ("", None),
    ("null", None), ("Yes", True), ("off", False), ("ON", True), ("2024-01-01", "2024-01-01"), ("0x10", "0x10"), ("1.2.3", "1.2.3"),
    ("1e999", "1e999"), ("99999999999999999999", 1e20), ("-", "-"), ("12:30:45", "12:30:45"), ("++1", "++1"), (".inf", ".inf"),
])
def test_words_of_yaml(text: str, value: Any) -> None:
    read = plain_scalar(text)
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize("text, messages", [
    ("a: " + "[" * 40 + "]" * 40 + "\n", ["nested deeper than 32 levels"]),
    ("a: " + "[" * 100_000 + "\n", ["line 2"]),
    ("".join(" " * level + "a:\n" for level in range(40)), ["nested deeper than 32 levels"]),
    ("a: &x [1]\nb: *x\n", ["line 3: an alias"]),
    ("debug: false\ndebug: true\n", ['line 3: the key "debug" stands there twice']),
    ("---\ndistributed_type: NO\n", ["several documents"]),
    ("? [a, b]\n: 1\n", ["a key must be a text"]),
    ('"\\e[2J": 1\n', ["\\u001b[2J"]),
    ("a: ]\n", ["line 2"]),
    ("a: " + "[" + "1," * 100_001 + "]\n", ["more than 100000 values"]),
    ("#" * (2 << 20), ["more than the 1048576"]),
    ("a: \udcff\n", ["line 2: a byte that is no UTF-8"]),
    ("a: \x00\n", ["characters are not allowed"]),
])
def test_hostile_yaml_is_refused(reading: Reading, text: str, messages: "list[str]") -> None:
    reading.refused(HEAD + text, *messages)


@pytest.mark.parametrize("text, message", [
    ('{"a": 1, "a": 2}', 'the key "a" stands there twice'), ('{"a": NaN}', "NaN is no number of JSON"), ('{"a": 1e999}', "out of range"),
    ('{"a": "\\ud800"}', "no valid JSON"), ("{" + '"a": {' * 40 + "}" * 41, "nested deeper than 32 levels"),
    ("[" * 100_000, "nested deeper than 32 levels"), ('{"a": 1,, }', "line 1, column 9"), ("{,}", "line 1"), ("[1] 2", "no valid JSON"), ('{"a": /* 1}', "no valid JSON"),
    ('{"a": ' + "9" * 5000 + "}", "no valid JSON"),
])
def test_hostile_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError) as refusal:
        parse_json(text, "x", comments=True)
    assert message in str(refusal.value)


def test_json_may_have_comments_and_last_commas() -> None:
    text = '{"a": [1, 2, ], # one\n"b": "//no#ne", // two\n/* three\n*/ "c": {"d": 1,},}'
    assert parse_json(text, "x", comments=True) == {"a": [1, 2], "b": "//no#ne", "c": {"d": 1}}
    with pytest.raises(DataError):
        parse_json(text, "x")


@pytest.mark.parametrize("text, message", [
    ("a = 1\na = 2\n", "x, line 2"), ("a = " + "[" * 40 + "]" * 40, "nested deeper"), ("a = " + "[" * 100_000, "x"), ("[a\n", "line 1"),
])
def test_hostile_toml_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError) as refusal:
        parse_toml(text, "x")
    assert message in str(refusal.value)


def test_dates_of_toml_are_texts() -> None:
    assert parse_toml("a = 1979-05-27\nb = [07:32:00]\n", "x") == {"a": "1979-05-27", "b": ["07:32:00"]}


def test_an_empty_yaml_is_null() -> None:
    assert parse_yaml("# nothing\n", "x") is None


@pytest.mark.parametrize("text, message", [
    ("model_name: a\nfoo: 1\n", "a torchtitan TOML, a script or file of Megatron-LM's arguments"),
    ("", "is of no format"), ("just words\n", "is of no format"),
    ("from torchtitan.trainer import Trainer\n\ndef f():\n  pass\n", "is Python code"), ('{"a": 1}', "has keys of no format"),
    ("[1]\n", "no"),
])
def test_files_of_no_such_kind_are_refused_with_what_is_read(reading: Reading, text: str, message: str) -> None:
    reading.refused(text, message)


def test_python_is_refused_by_name(reading: Reading) -> None:
    reading.refused("batch_size = 12\n", "is Python code", name="config.py")


def test_files_that_are_none_are_refused(reading: Reading) -> None:
    os.mkfifo(reading.folder / "pipe")
    from consist.readers.formats import read_file
    from consist.readers.target import Context
    for name, message in (("pipe", "is no regular file"), ("none", "No such file"), ("a\x00b", "null byte")):
        with pytest.raises(DataError) as refusal:
            read_file(str(reading.folder / name), Context())
        assert message in str(refusal.value)


def test_texts_are_fit_for_a_terminal() -> None:
    assert printable("a\x1b[2J\u202e\udcff") == "a\\u001b[2J\\u202e\\xff"
    assert in_quotes('a"\n' + "x" * 300) == '"a\\"\\n' + "x" * 197 + '"...'
    assert shown({"b": [1.5, True], "a": None}) == '{"a":null,"b":[1.5,true]}'
    assert len(shown("x" * 300)) == 203


@pytest.mark.parametrize("value, text", [(1e-4, "0.0001"), (1e-7, "1e-07"), (2.0, "2"), (0.1 + 0.2, "0.30000000000000004"),
                                         (1e15, "1e+15"), (3, "3"), (True, "on"), ("x", "x")])
def test_values_as_options_take_them(value: object, text: str) -> None:
    assert as_text(value) == text


def test_a_missing_package_is_named(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(UsageError) as refusal:
        reading.read(HEAD)
    assert "pip install pyyaml" in str(refusal.value) and "python3-yaml" in str(refusal.value)
