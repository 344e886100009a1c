"""What an op is called in a bar of a timeline or in a list: short, without its group."""

from __future__ import annotations


def call_name(kind: str, seq: int, name: str = "") -> str:
    """'all_reduce #42'; `name`: of the function, where it is another one than the kind."""
    return f"{name or kind} #{seq}"


def message_name(kind: str, peer: int | None) -> str:
    """'send to 3', 'recv from any rank'."""
    return f"{kind} {'to' if kind == 'send' else 'from'} {'any rank' if peer is None else peer}"


def with_comm(name: str, comm: str) -> str:
    """An op with what the program calls it, or what called it for the program."""
    return f"{name} ({comm})" if comm else name


def status_words(label: str) -> str:
    """'peer lost', of the label that the API has for it."""
    return str(label).replace("_", " ")
