"""Who may read metrics over HTTP, and what of it is said."""

from __future__ import annotations

import pytest

from distdbg.export.http.access import AccessGate, find_uids
from distdbg.export.http.pages import takes_gzip
from distdbg.export.http.peers import find_uid, is_local
from distdbg.export.http.sd import MetricsTarget, write_targets
from distdbg.launch.endpoint import join_endpoint

GATE = AccessGate(own_uid=1000, uids=frozenset((1001,)), token=b"secret")


def why_not(
    gate: AccessGate = GATE,
    *,
    uid: int | None = None,
    is_local: bool = True,
    host: str | None = "127.0.0.1:9400",
    authorization: str | None = None,
) -> str:
    return gate.why_not(uid=uid, is_local=is_local, host=host, authorization=authorization)


@pytest.mark.parametrize("uid", [1000, 1001, 0])
def test_known_users_of_the_host_may(uid: int) -> None:
    assert why_not(uid=uid) == ""


@pytest.mark.parametrize("uid", [1002, None])
def test_other_users_of_the_host_are_told_how_they_could(uid: int | None) -> None:
    assert "DISTDBG_METRICS_USERS" in why_not(uid=uid)
    assert "Bearer" in why_not(uid=uid)


def test_elsewhere_a_user_counts_for_nothing() -> None:
    assert "a token is needed" in why_not(uid=1000, is_local=False)


@pytest.mark.parametrize("is_here", [True, False])
def test_the_token_counts_everywhere_and_under_any_name(is_here: bool) -> None:
    for words in ("Bearer secret", "bearer  secret "):
        assert why_not(is_local=is_here, host="n01:9400", authorization=words) == ""


@pytest.mark.parametrize("words", ["Bearer other", "Bearer ", "Basic secret", "secret", ""])
def test_a_wrong_token_is_refused_also_to_the_own_user(words: str) -> None:
    assert why_not(uid=1000, authorization=words) != ""


def test_without_a_token_none_is_right() -> None:
    assert why_not(AccessGate(own_uid=1000), uid=1000, authorization="Bearer ") != ""


@pytest.mark.parametrize("host", ["127.0.0.1:9400", "[::1]:9400", "localhost", "LOCALHOST:1", None])
def test_a_user_asks_for_an_address_or_localhost(host: str | None) -> None:
    assert why_not(uid=1000, host=host) == ""


@pytest.mark.parametrize("host", ["evil.example:9400", "127.0.0.1.evil.example", ""])
def test_a_page_under_a_foreign_name_is_refused(host: str) -> None:
    assert "any other name" in why_not(uid=1000, host=host)


def test_users_are_names_or_numbers_and_some_are_not_there() -> None:
    assert find_uids(("prometheus", "1005", "nobody-here"), {"prometheus": 110}) == {110, 1005}


TABLE = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: 0100007F:24B8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 40 1 0\n"
    "   1: 0100007F:D431 0100007F:24B8 01 00000000:00000000 00:00000000 00000000  1001        0 41 1 0\n"
    "   2: 0100007F:D432 0100007F:24B8 06 00000000:00000000 03:00000000 00000000     0        0 0 3 0\n"
)


def test_the_table_of_the_kernel_says_whose_a_connection_is() -> None:
    assert find_uid(TABLE, "0100007F:D431 0100007F:24B8") == 1001
    assert find_uid(TABLE, "0100007F:D433 0100007F:24B8") is None


def test_a_connection_that_its_owner_has_closed_is_nobodys() -> None:
    assert find_uid(TABLE, "0100007F:D432 0100007F:24B8") is None


@pytest.mark.parametrize(
    ("address", "is_it"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("", False),
    ],
)
def test_addresses_that_only_this_host_has(address: str, is_it: bool) -> None:
    assert is_local(address) is is_it


@pytest.mark.parametrize(
    ("words", "is_it"),
    [
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("*", True),
        ("gzip;q=0", False),
        ("identity", False),
        ("", False),
    ],
)
def test_what_is_compressed_is_what_may_be(words: str, is_it: bool) -> None:
    assert takes_gzip(words) is is_it


def test_targets_are_as_prometheus_reads_them() -> None:
    import json

    reported = json.loads(
        write_targets([MetricsTarget("127.0.0.1:1", "b", "h"), MetricsTarget("[::1]:2", "a", "h")])
    )
    assert [one["targets"] for one in reported] == [["[::1]:2"], ["127.0.0.1:1"]]
    labels = ["__scheme__", "__meta_distdbg_run", "__meta_distdbg_host"]
    assert [list(one["labels"]) for one in reported] == [labels, labels]


def test_each_target_has_its_own_scheme() -> None:
    import json

    plain, secure = MetricsTarget("a:1", "a", "h"), MetricsTarget("b:1", "b", "h", "https")
    reported = json.loads(write_targets([plain, secure]))
    assert [one["labels"]["__scheme__"] for one in reported] == ["http", "https"]


def test_an_address_of_version_6_is_in_brackets() -> None:
    assert join_endpoint("::1", 9400) == "[::1]:9400"
    assert join_endpoint("10.0.0.1", 9400) == "10.0.0.1:9400"
