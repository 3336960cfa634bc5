"""Writes docs/values.md from the case file: what you send, and what arrives. The run of the cases fails if it is old."""

import json
import pathlib
import sys

import notation

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/values.md"
INTRODUCTION = """# Values: what you send, what arrives

This page is made from [protocol/values/cases.json](../protocol/values/README.md), which the tests send from every client and
server to every other one, in JSON, in MessagePack and encrypted, as messages, publications, requests, answers and presence data, through
the queues, on a connection that tabs share, through a backend and by the HTTP API. What is in no row of the first table and can be written in JSON arrives as it was sent.

A payload is a value of JSON, or bytes. `null` arrives as `null`; a payload that was not given arrives as `{}`. Python gives
`bytes` and TypeScript a `Uint8Array` for bytes, wherever they were sent. A client of an older version gets their base64 as a text.
A client refuses before it sends what could not arrive: Rust with `Error::Invalid`, Python with `InvalidArgumentError` or
`WrongTypeError`, TypeScript with `INVALID_ARGUMENT`. The server refuses it from other clients with the code in the table and the
`cid` of the message; the HTTP API answers 400.

## What arrives

JavaScript has only doubles: `JSON.parse` rounds a whole number beyond 2^53, and so does a client or server in TypeScript or Node that
sends one. Rust and Python have every digit, but for presence data, which has whole numbers from -2^63 to 2^64 - 1: Python refuses others there. MessagePack, if a sender or a receiver uses it, has whole numbers from -2^63 to 2^64 - 1
and rounds others to doubles. Send larger numbers as text.

| sent | in Rust and Python | in TypeScript and Node |
|---|---|---|
"""
REFUSED = """
## What is refused

| sent | refused by | code of the server |
|---|---|---|
"""
NAMES = """
## Names that are refused

The client refuses them before it sends anything where it knows the rule, and otherwise the server does with this code.

| name | code of the server |
|---|---|
"""


def page():
    table = json.loads((ROOT / "protocol/values/cases.json").read_text())
    lines = [row(arrives(case)) for case in table["cases"]]
    refused = [row(refusal(case)) for case in table["refused"]]
    names = [row(name(case)) for case in table["names"]]
    return INTRODUCTION + "".join(lines) + REFUSED + "".join(refused) + NAMES + "".join(names)


def row(cells):
    return f"| {' | '.join(cells)} |\n"


def arrives(case):
    exact = notation.describe(notation.build(case.get("arrives", case["value"])))
    first = f"`{json.dumps(case['arrives'])}`" if "arrives" in case else "the same"
    doubles = notation.rounded(exact)
    return [case["name"], first, first if doubles == exact else f"rounded: `{in_words(doubles)}`"]


def in_words(description):
    kind, content = description
    if kind == "object":
        return ", ".join(f"{key}: {in_words(value)}" for key, value in content.items())
    return content


def refusal(case):
    languages = [name for name in ("typescript", "python") if name in case]
    titles = {"typescript": "TypeScript and Node", "python": "Python"}
    by = "every client and server" if "value" in case else " and ".join(titles[name] for name in languages)
    code = f"`{case['server']}`" if "server" in case else "JSON cannot say it"
    return [case["name"], by, code]


def name(case):
    part = "topic" if "topic" in case else "type"
    spec = case[part]
    words = f"`{spec}`" if isinstance(spec, str) and spec else "empty"
    if not isinstance(spec, str):
        size = len(notation.build(spec).encode("utf-8", "surrogatepass"))
        words = "with half an emoji" if spec["$"] == "units" else f"of {size} bytes"
    return [f"{part} {words}", f"`{case['server']}`"]


def check():
    if not PAGE.exists() or PAGE.read_text() != page():
        sys.exit("docs/values.md is not what the cases say: run python3 conformance/values/page.py")


if __name__ == "__main__":
    PAGE.write_text(page())
