"""What flags and variables ask agents to export: what fits, and what is said of the rest."""

from __future__ import annotations

import socket
from contextlib import nullcontext
from pathlib import Path

import pytest

from distdbg.errors import ConfigError, DistError, UsageError
from distdbg.launch.exports import ExportOptions, check_here, is_loopback, read_exports
from tests.support.rights import ordinary_rights


def test_nothing_is_asked_for_by_default() -> None:
    exports = read_exports({})
    assert not exports.is_asked
    assert exports.environment() == {}


@pytest.mark.parametrize(
    ("words", "listen"),
    [
        ("9400", ("127.0.0.1", 9400)),
        ("0", ("127.0.0.1", 0)),
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("[::1]:9400", ("::1", 9400)),
        ("localhost:9400", ("localhost", 9400)),
    ],
)
def test_the_variable_is_a_port_or_an_address(words: str, listen: tuple[str, int]) -> None:
    assert read_exports({"DISTDBG_METRICS": words}).listen == listen


@pytest.mark.parametrize("words", ["70000", "-1", "9400x", "host", "1.2.3.4", "a:b:c", "h:99999"])
def test_what_is_no_address_is_an_error_that_names_it(words: str) -> None:
    with pytest.raises(UsageError, match="DISTDBG_METRICS="):
        read_exports({"DISTDBG_METRICS": words})


def test_a_port_that_cannot_be_is_an_error_that_names_the_flag() -> None:
    with pytest.raises(UsageError, match=r"--metrics-port=70000"):
        read_exports({}, port=70000)


def test_a_flag_wins_over_the_variable() -> None:
    environ = {
        "DISTDBG_METRICS": "1",
        "DISTDBG_METRICS_PUSH": "http://a:1",
        "DISTDBG_OTLP": "logs",
    }
    exports = read_exports(environ, port=2, push="http://b:2", otlp="traces,metrics")
    assert exports.listen == ("127.0.0.1", 2)
    assert exports.push == "http://b:2"
    assert exports.signals == {"traces", "metrics"}


def test_an_address_has_a_port_already() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        read_exports({}, port=1, address="127.0.0.1:1")


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.5", "node1", "[::]"])
def test_other_hosts_reach_it_with_a_token_only(host: str) -> None:
    with pytest.raises(ConfigError, match="without a token"):
        read_exports({}, address=f"{host}:9400")
    environ = {"DISTDBG_METRICS_TOKEN_FILE": "/token"}
    assert read_exports(environ, address=f"{host}:9400").token_file == Path("/token")


def test_paths_are_made_absolute_for_an_agent_that_stands_elsewhere() -> None:
    exports = read_exports({}, folder="here")
    assert exports.folder == Path.cwd() / "here"
    assert exports.environment() == {"DISTDBG_METRICS_FILE": str(Path.cwd() / "here")}


@pytest.mark.parametrize("url", ["a", "ftp://a:1", "http://", "http://a:99999", "http://[x"])
def test_a_url_of_no_gateway_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="Pushgateway"):
        read_exports({}, push=url)


def test_a_url_is_not_shown_for_the_sake_of_a_password() -> None:
    with pytest.raises(UsageError) as caught:
        read_exports({}, push="ftp://ann:secret@gateway:1")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "signals"),
    [
        ("all", {"traces", "metrics", "logs"}),
        ("Traces , logs", {"traces", "logs"}),
        ("none", set()),
        ("", set()),
    ],
)
def test_signals_are_words(words: str, signals: set[str]) -> None:
    assert read_exports({}, otlp=words).signals == signals


def test_an_unknown_signal_is_named_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="'spans'") as caught:
        read_exports({"DISTDBG_OTLP": "traces,spans"})
    assert caught.value.hint == "expected any of traces, metrics, logs; or all, none"


def test_an_agent_reads_what_the_launcher_was_told() -> None:
    environ = {"DISTDBG_METRICS_TOKEN_FILE": "/token", "DISTDBG_METRICS_USERS": "ann"}
    exports = read_exports(environ, address="[::]:9400", folder="/f", push="http://g:1", otlp="all")
    assert read_exports({**environ, **exports.environment()}) == exports


@pytest.mark.parametrize(
    ("host", "is_it"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("n1", False)],
)
def test_loopback_is_known_by_its_text(host: str, is_it: bool) -> None:
    assert is_loopback(host) is is_it


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o644)
    exports = ExportOptions(listen=("127.0.0.1", 0), token_file=token)
    with pytest.raises(ConfigError, match="can be read by others"):
        check_here(exports)
    token.chmod(0o600)
    check_here(exports)
    token.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        check_here(exports)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        check_here(ExportOptions(folder=tmp_path / "nowhere"))


def test_an_address_of_another_host_is_an_error() -> None:
    with pytest.raises(DistError, match=r"192\.0\.2\.1"):
        check_here(ExportOptions(listen=("192.0.2.1", 9400)))


def test_a_port_that_somebody_has_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_here(ExportOptions(listen=("127.0.0.1", server.getsockname()[1])))


def test_a_port_for_root_is_an_error() -> None:
    # Many containers have no such ports; then it is none.
    for_root = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) > 80
    expected = pytest.raises(ConfigError, match="below 1024") if for_root else nullcontext()
    with ordinary_rights(), expected:
        check_here(ExportOptions(listen=("127.0.0.1", 80)))


@pytest.mark.parametrize("name", ["DISTDBG_OTLP_SLOW_S", "DISTDBG_OTLP_SPANS_PER_S"])
def test_what_spans_are_kept_by_is_not_below_zero(name: str) -> None:
    assert read_exports({name: "0"}, otlp="traces").signals
    with pytest.raises(
        ConfigError, match=f"{name}='-3' is not valid; expected a number of at least 0"
    ):
        read_exports({name: "-3"}, otlp="traces")


@pytest.mark.parametrize("text", ["-1", "inf", "nan", "3601"])
def test_the_time_at_the_end_is_a_number_of_seconds(text: str) -> None:
    assert read_exports({"DISTDBG_EXPORT_END_S": "0"}, otlp="traces").signals
    with pytest.raises(ConfigError, match="DISTDBG_EXPORT_END_S"):
        read_exports({"DISTDBG_EXPORT_END_S": text}, otlp="traces")
