"""Users of a load log in to a site of Django, as people do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tidewire

USERS = 5
SCENARIO = """
data = { people = { file = "people.csv", unique = true } }

[[setup]]
name = "form"
path = "/login"
capture = { token = "form:csrfmiddlewaretoken" }
[[setup]]
name = "log in"
path = "/login"
form = { csrfmiddlewaretoken = "{{token}}", username = "{{name}}", password = "{{password}}" }
expect_status = 302

[[request]]
name = "me"
path = "/me"
expect_body = "hello user"
capture = { token = "form:csrfmiddlewaretoken" }

[[teardown]]
name = "log out"
path = "/logout"
form = { csrfmiddlewaretoken = "{{token}}" }
expect_status = 302
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    program = Path(__file__).with_name("django_app.py")
    command = [sys.executable, str(program), str(tmp_path), str(USERS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
        process.stdin.close()


def test_users_log_in_keep_their_session_and_log_out(site: str, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(
        "name,password\n" + "".join(f"user{number},secret & {number}\n" for number in range(USERS))
    )
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO)
    result = tidewire.load(site, connections=USERS, requests=60, scenario=scenario)
    assert (result.succeeded, result.failed) == (60, 0), result
    rows = {row["name"]: row["requests"] for row in result.to_dict()["results"][0]["targets"]}
    succeeded = {name: row["succeeded"] for name, row in rows.items()}
    assert succeeded == {"form": USERS, "log in": USERS, "me": 60 - 2 * USERS, "log out": USERS}


def test_without_cookies_the_login_is_refused(site: str, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("name,password\nuser0,secret & 0\n")
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO)
    result = tidewire.load(site, connections=1, requests=4, scenario=scenario, keep_cookies=False)
    assert result.statuses == {200: 2, 403: 2}
