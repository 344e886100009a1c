"""What the tests ask servers with, and how they read what is said."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    status: int
    text: str
    headers: dict[str, str] = field(default_factory=dict)


def get(url: str, **headers: str) -> Answer:
    """Ask once; also an error has an answer."""
    request = urllib.request.Request(
        url, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=30
        ) as it:
            return Answer(it.status, it.read().decode(), dict(it.headers))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read().decode(), dict(error.headers))


def get_numbers(url: str, **headers: str) -> str:
    """/metrics below a URL. NotYet for anything else: an agent that begins, or that others keep busy."""
    answer = get(f"{url}/metrics", **headers)
    if answer.status != 200:
        raise NotYet(f"{answer.status}: {answer.text}")
    return answer.text


class NotYet(Exception):
    """A server has no numbers now."""


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """By name, the labels and values, as the official client reads them."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            found.setdefault(one.name, []).append((one.labels, one.value))
    return found


def value_of(text: str, name: str, **labels: str) -> float | None:
    """The sum over the series that have these labels; None: there is none."""
    fitting = [
        value
        for known, value in samples(text).get(name, [])
        if all(known.get(label) == wanted for label, wanted in labels.items())
    ]
    return sum(fitting) if fitting else None


def await_that(is_so: Callable[[], Any], what: str, limit_s: float = 120.0) -> Any:
    """Wait until it is; what it then is. A server that is not there yet, or goes meanwhile, is not."""
    deadline = time.monotonic() + limit_s
    why: Exception | None = None
    while True:
        try:
            found = is_so()
        except (OSError, http.client.HTTPException, NotYet) as error:
            found, why = None, error
        if found:
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(what) from why
        time.sleep(0.05)  # a server is asked, it does not call
