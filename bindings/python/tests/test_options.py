"""Every option of the table is a keyword argument, and means what the program makes of it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
import tidewire
from option_examples import OPTIONS, TABLE, example
from tidewire._options import ServerOptions, TopicRule

KEYWORDS = sorted(name for name, option in OPTIONS.items() if option["keyword"])


def test_the_keyword_arguments_are_those_of_the_table() -> None:
    assert sorted(tidewire.Server.option_names()) == KEYWORDS
    assert sorted(ServerOptions.__annotations__) == KEYWORDS
    assert list(TopicRule.__annotations__) == [key["name"] for key in TABLE["rule_keys"]]


@pytest.mark.parametrize("name", KEYWORDS)
def test_an_option_by_keyword_means_the_same_as_in_json(name: str, tmp_path: Path) -> None:
    value, beside = example(name, tmp_path)
    options: dict[str, Any] = {**beside, name: value}
    by_keyword = tidewire.Server(**options)._describe()
    text = json.dumps(options, default=os.fspath)
    assert by_keyword == tidewire.Server._describe_json(text)
    if isinstance(value, list):
        assert by_keyword == tidewire.Server(**{**options, name: tuple(value)})._describe()
    try:
        without = tidewire.Server(**beside)._describe()
    except tidewire.ConfigurationError:
        return  # it cannot be left out alone
    assert by_keyword != without


@pytest.mark.parametrize("name", KEYWORDS)
def test_the_type_of_an_option_accepts_its_example(name: str, tmp_path: Path) -> None:
    annotation = get_type_hints(ServerOptions)[name]
    value = example(name, tmp_path).value
    kind = OPTIONS[name]["kind"]
    if kind == "choice":
        assert list(get_args(annotation)) == OPTIONS[name]["values"]
    elif kind in ("integer", "boolean", "text", "secret", "address"):
        assert type(value) is annotation
    elif kind == "file":
        assert str in get_args(annotation)
    else:
        assert get_origin(annotation) is not None


@pytest.mark.parametrize("name", KEYWORDS)
def test_a_value_of_another_kind_is_refused(name: str) -> None:
    with pytest.raises(tidewire.ConfigurationError, match=rf"^{name}: .*expected ") as wrong:
        tidewire.Server(**{name: {"a": {}}})  # type: ignore[arg-type]
    assert wrong.value.fault == "caller"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mesage_bytes_max": 1}, "unknown option mesage_bytes_max: did you mean message_bytes_max?"),
        ({"zzz": 1}, "unknown option zzz"),
        ({"message_bytes_max": 1}, "message_bytes_max: 1: expected a whole number from 125 on (bytes)"),
        ({"message_bytes_max": 1.5}, "message_bytes_max: 1.5: expected a whole number"),
        ({"message_bytes_max": "1000"}, 'message_bytes_max: "1000": expected a whole number'),
        ({"no_auth": 1}, "no_auth: 1: expected true or false"),
        ({"deflate": "on"}, 'deflate: "on": expected one of off, shared, per-connection'),
        ({"path": ["/a", "b"]}, 'path: "b": expected a path that starts with a slash'),
        ({"origin": "a.example"}, 'origin: "a.example": expected an origin'),
        ({"jwt_secret": 7}, "jwt_secret: expected a text"),
        ({"history": {"a": "b"}}, 'history: "a": "b": expected'),
        (
            {"topic_rules": [{"pattern": "a", "prioriti": 1}]},
            "topic_rules[0]: unknown key prioriti: did you mean",
        ),
        (
            {"topic_rules": [{"pattern": "a", "priority": 2}]},
            "topic_rules[0]: priority: 2: expected one of 1, 3",
        ),
    ],
)
def test_a_wrong_option_names_value_and_range(options: dict[str, Any], words: str) -> None:
    with pytest.raises(tidewire.ConfigurationError, match="^" + re.escape(words)):
        tidewire.Server(**options)


@pytest.mark.parametrize("deflate", ["per-connection", "per_connection"])
def test_choices_have_dashes_or_underscores(deflate: Any) -> None:
    expected = tidewire.Server(no_auth=True, deflate="per-connection")._describe()
    assert tidewire.Server(no_auth=True, deflate=deflate)._describe() == expected
