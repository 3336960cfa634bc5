"""The values of `protocol/values/cases.json`: how a case says them, and how an agent says what arrived.

`agents/notation.mjs` is the same for JavaScript; both must say the same of the same value, or every case fails.
"""

import base64
import hashlib
import json
import re
import struct

MISSING = object()
# Longer texts and bytes are told by their length and hash.
WHOLE_MAX = 256


def build(spec):
    """The value that a case means. `MISSING` stands for no value at all."""
    if isinstance(spec, list):
        return [build(item) for item in spec]
    if not isinstance(spec, dict):
        return spec
    form = spec.get("$")
    if form is None:
        return {key: build(value) for key, value in spec.items()}
    if form == "missing":
        return MISSING
    if form == "number":
        return json.loads(spec["text"])
    if form == "units":
        return bytes.fromhex(spec["hex"]).decode("utf-16-be", "surrogatepass")
    if form == "repeat":
        return spec["text"] * spec["times"]
    if form == "nest":
        return nested(spec["levels"])
    if form == "bytes":
        return (bytes(range(256)) * (spec["count"] // 256 + 1))[: spec["count"]]
    if form == "json":
        return json.loads(spec["text"])
    if form == "python":
        return eval(spec["text"])  # The case file is our own.
    raise ValueError(f"no form {form!r} in {spec}")


def nested(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value


def json_text(spec):
    """The same as JSON text, for those who are given text: Rust and the HTTP API."""
    if isinstance(spec, list):
        return f"[{','.join(map(json_text, spec))}]"
    if isinstance(spec, dict):
        if spec.get("$") in ("number", "json"):
            return spec["text"]
        if spec.get("$") == "nest":
            return "[" * spec["levels"] + "]" * spec["levels"]
        if "$" not in spec:
            members = ",".join(f"{json.dumps(key)}:{json_text(value)}" for key, value in spec.items())
            return f"{{{members}}}"
    value = build(spec)
    # Half a pair can only be written as an escape.
    is_half = isinstance(value, str) and re.search("[\ud800-\udfff]", value) is not None
    return json.dumps(value, ensure_ascii=is_half)


def describe(value):
    """What a value is, in a form that is equal in every language: a list of its kind and its content."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return long_form("text", value.encode("utf-8", "surrogatepass")) or ["text", value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return long_form("bytes", bytes(value)) or ["bytes", base64.b64encode(value).decode()]
    if isinstance(value, int):
        return ["number", str(value)]
    if isinstance(value, float):
        return ["number", str(int(value))] if value.is_integer() else ["double", struct.pack(">d", value).hex()]
    if isinstance(value, list):
        return ["array", [describe(item) for item in value]]
    if isinstance(value, dict):
        return ["object", {key: describe(item) for key, item in value.items()}]
    return ["other", type(value).__name__]


def long_form(kind, data):
    if len(data) <= WHOLE_MAX:
        return None
    return [f"long {kind}", len(data), hashlib.sha256(data).hexdigest()]


def describe_wire(told):
    """What an agent in Rust received: the text of its JSON, or bytes."""
    if "bytes" in told:
        return describe(base64.b64decode(told["bytes"]))
    return describe(json.loads(told["text"]))


def rounded(description, kept=lambda number: False):
    """What is left of a description where numbers are doubles, except for the integers that are `kept`."""
    if not isinstance(description, list):
        return description
    kind, *content = description
    if kind == "number":
        number = int(content[0])
        return description if kept(number) else describe(float(number))
    if kind == "array":
        return [kind, [rounded(item, kept) for item in content[0]]]
    if kind == "object":
        return [kind, {key: rounded(item, kept) for key, item in content[0].items()}]
    return description


def is_wide(description):
    """True if an integer in a description has more than 64 bits."""
    if not isinstance(description, list):
        return False
    kind, *content = description
    if kind == "number":
        return not fits_64_bits(int(content[0]))
    items = content[0].values() if kind == "object" else content[0] if kind == "array" else []
    return any(map(is_wide, items))


def fits_64_bits(number):
    return -(2**63) <= number < 2**64


def base64_of(spec):
    return base64.b64encode(build(spec)).decode()
