"""Who may come in to a dashboard in a browser."""

import pytest

from distdbg.tui.access import Answer, Gate

GATE = Gate(port=4711, token="T" * 43, cookie="C" * 43, prefix="prefix")
OURS = "127.0.0.1:4711"


def answer(path: str = "/", **more: str | None) -> Answer:
    usual: dict[str, str | None] = {"host": OURS, "origin": None, "token": None, "cookie": None}
    return GATE.answer(path=path, **(usual | more))


def test_the_token_is_exchanged_for_the_cookie() -> None:
    assert answer(token=GATE.token) is Answer.GREET
    assert answer(GATE.path, cookie=GATE.cookie) is Answer.SERVE
    assert answer(f"{GATE.path}ws", cookie=GATE.cookie, origin=f"http://{OURS}") is Answer.SERVE


@pytest.mark.parametrize("token", [None, "", "T", "T" * 42, "T" * 44, "C" * 43, "täken"])
def test_another_token_is_refused(token: str | None) -> None:
    assert answer(token=token) is Answer.REFUSE
    assert answer(GATE.path, cookie=token if token != GATE.cookie else None) is Answer.REFUSE


def test_the_token_opens_nothing_but_the_door_and_the_cookie_only_its_path() -> None:
    for path in (GATE.path, f"{GATE.path}ws", "/static/js/textual.js", "/prefix", "/ws"):
        assert answer(path, token=GATE.token) is Answer.REFUSE
    for path in ("/", "/prefix", "/other/", "/ws", "/prefixed/ws"):
        assert answer(path, cookie=GATE.cookie) is Answer.REFUSE


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "evil.example:4711", "127.0.0.1", "127.0.0.1:80", "[::1]:4711"],
)
def test_a_foreign_name_for_this_host_is_refused(host: str | None) -> None:
    assert answer(host=host, token=GATE.token) is Answer.REFUSE
    assert answer(GATE.path, host=host, cookie=GATE.cookie) is Answer.REFUSE
    assert answer(host="localhost:4711", token=GATE.token) is Answer.GREET


@pytest.mark.parametrize(
    "origin", ["null", "http://evil.example", "https://127.0.0.1:4711", "http://127.0.0.1:81", ""]
)
def test_a_page_of_somebody_else_is_refused(origin: str) -> None:
    assert answer(f"{GATE.path}ws", origin=origin, cookie=GATE.cookie) is Answer.REFUSE


def test_each_server_has_secrets_of_its_own() -> None:
    one, other = Gate(port=1), Gate(port=1)
    secrets = {one.token, one.cookie, one.prefix, other.token, other.cookie, other.prefix}
    assert len(secrets) == 6
    assert len(one.token) >= 43
    assert one.url == f"http://127.0.0.1:1/?token={one.token}"
    assert one.token not in one.path
