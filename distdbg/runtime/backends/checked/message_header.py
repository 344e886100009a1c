"""What each side says of a message: a header beside it, and the same facts of the receiver's."""

from __future__ import annotations

import json
from typing import Any, Final

from distdbg.ops.call import Call, Kind
from distdbg.ops.sites import UNKNOWN
from distdbg.runtime.backends.checked.array_facts import ArrayFacts

#: How long a header may be.
HEADER_NBYTES: Final = 768
_MAX_WORDS: Final = 100


def make_header(words: dict[str, Any]) -> bytes:
    """As it travels."""
    text = json.dumps(words, ensure_ascii=False).encode(errors="replace")
    if len(text) > HEADER_NBYTES:  # names in characters that take many bytes
        text = json.dumps(words | {"function": "send", "call_site": UNKNOWN}).encode()
    return text


def look(call: Call, array: Any) -> tuple[Any, ...]:
    """What the words of a call are made of, beside its line."""
    return (
        getattr(array, "shape", None),
        getattr(array, "dtype", None),
        getattr(array, "device", None),
        type(array),
        call.tag,
        call.name,
    )


def words_of(call: Call, site: str) -> dict[str, Any]:
    """What a side says that called at this line."""
    facts = ArrayFacts(call.inputs[0] if call.kind is Kind.SEND else call.outputs[0])
    count = 1
    for extent in facts.shape:
        count *= extent
    return {
        "dtype": facts.label[:_MAX_WORDS],
        "count": count,
        "device": facts.device[:_MAX_WORDS],
        "tag": call.tag,
        "function": (call.name or call.kind.label)[:_MAX_WORDS],
        "call_site": site,
    }


def amount(facts: dict[str, Any], has_tag: bool, has_device: bool) -> str:
    """'4 float32 on cuda:0 with tag 3'."""
    text = f"{facts['count']} {facts['dtype']}"
    if has_device:
        text += f" on {facts['device']}"
    return f"{text} with tag {facts['tag']}" if has_tag else text
