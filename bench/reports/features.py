"""Who has which feature: that of Tidewire is named by the test that shows it, those of the others are from their documentation."""

from __future__ import annotations

import re

from reports.sections import identifier
from reports.table import Column, Table
from servers import ROOT

SOCKETS = "crates/tidewire-engine/tests/sockets"
CLIENT = "crates/tidewire-client/tests/client"
PEERS = ["uWebSockets", "Socket.IO", "Centrifugo", "ws", "websockets (Python)"]

# The feature, the test of Tidewire (file and name), and the peers in the order of PEERS.
FEATURES = [
    ("JWT in the handshake", f"{SOCKETS}/tokens.rs", "each_bad_token_is_refused_before_the_upgrade", "own code", "own code", "yes", "own code", "own code"),
    ("Topics with fan-out", f"{SOCKETS}/topics.rs", "what_is_published_reaches_every_subscriber_in_one_order", "yes", "rooms", "yes", "no", "`broadcast`"),
    ("Patterns of topics", f"{SOCKETS}/topics.rs", "a_pattern_brings_every_topic_it_matches_once", "no", "no", "no", "no", "no"),
    ("History and recovery of what was missed", f"{CLIENT}/reconnect.rs", "what_was_missed_is_recovered", "no", "of a session", "yes", "no", "no"),
    ("Presence", f"{SOCKETS}/api.rs", "presence_is_counted_by_user", "no", "own code", "yes", "no", "no"),
    ("Filters in the server", f"{SOCKETS}/topics.rs", "a_filter_lets_through_what_it_matches", "no", "no", "by tags", "no", "no"),
    ("Acknowledged messages, each once", f"{SOCKETS}/acknowledged.rs", "numbers_are_taken_once_and_acknowledged", "no", "at least once", "no", "no", "no"),
    ("Deduplication by id", f"{SOCKETS}/acknowledged.rs", "an_id_that_has_come_before_is_dropped", "no", "own code", "of publications", "no", "no"),
    ("Queue groups", f"{CLIENT}/requests.rs", "a_group_shares_and_acknowledges", "no", "no", "no", "no", "no"),
    ("Priorities of messages", f"{CLIENT}/queue.rs", "what_waits_goes_by_priority", "no", "no", "no", "no", "no"),
    ("Rate limits of a client", f"{SOCKETS}/refusals.rs", "the_rate_limit_names_what_it_has_refused", "no", "own code", "Pro", "no", "no"),
    ("Signed messages", f"{SOCKETS}/refusals.rs", "a_message_without_its_signature_is_refused_by_its_name", "no", "no", "no", "no", "no"),
    ("Encrypted messages, besides TLS", f"{SOCKETS}/encryption.rs", "a_server_that_requires_encryption_takes_nothing_else", "no", "no", "no", "no", "no"),
    ("permessage-deflate", f"{SOCKETS}/compression.rs", "a_broadcast_is_compressed_once", "yes", "yes", "yes", "yes", "yes"),
    ("A binary format", f"{SOCKETS}/forms.rs", "every_form_says_the_same", "own code", "attachments", "Protobuf", "own code", "own code"),
    ("Several servers", "crates/tidewire-engine/tests/cluster/publications.rs", "a_client_recovers_at_another_server", "own code", "Redis and others", "Redis, NATS", "no", "no"),
    ("Metrics for Prometheus", f"{SOCKETS}/ops.rs", "metrics_are_in_the_text_format_of_prometheus", "no", "own code", "yes", "no", "no"),
    ("Clients reconnect by themselves", f"{CLIENT}/reconnect.rs", "what_waits_while_there_is_no_server_is_sent_later", "no client", "yes", "yes", "no", "yes"),
    ("What is sent offline survives a restart", "crates/tidewire-client/src/queue/sqlite/kill_tests.rs", "no_kill_loses_what_is_sent_again", "no client", "no", "no", "no", "no"),
    ("A load generator", "crates/tidewire-cli/tests/cli/bench.rs", "a_quick_run_writes_three_files_and_says_where", "no", "no", "no", "no", "no"),
]  # fmt: skip


def tables() -> list[Table]:
    names = [
        ("feature", "Feature"),
        ("tidewire", "Tidewire, by the test"),
        *((identifier(name), name) for name in PEERS),
    ]
    about = (
        "`own code`: the application can do it with what the library has. Of the others this is from their documentation, "
        "November 2026. fastwebsockets, tokio-tungstenite and picows read and write frames, and leave all of these "
        "to the application."
    )
    table = Table("features", "Features", about, [Column(column, name) for column, name in names])
    for feature, path, test, *others in FEATURES:
        said = dict(zip(map(identifier, PEERS), others, strict=True))
        table.rows[feature] = {"feature": feature, "tidewire": f"[`{test}`](../../{path})", **said}
    return [table]


def missing_tests() -> list[str]:
    """The names of tests that their file does not have."""
    has = lambda path, name: re.search(rf"fn {name}\(", (ROOT / path).read_text())
    return [f"{path}: {name}" for _, path, name, *_ in FEATURES if not has(path, name)]
