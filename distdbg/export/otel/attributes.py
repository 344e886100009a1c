"""Every attribute, and what it is of; `docs/reference/otel.md` is made from here.

OpenTelemetry's own names where there is one; the others begin with `distdbg.`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class AttributeScope(StrEnum):
    RESOURCE = "resource"
    OP = "op"
    MESSAGE = "message"
    REGION = "region"
    FINDING = "finding"
    END = "end of a rank"
    EVENT = "event"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Attribute:
    name: str
    kind: str
    of: tuple[AttributeScope, ...]
    about: str


RUN: Final = "distdbg.run"
START: Final = "distdbg.start"
RANK: Final = "distdbg.rank"
WORLD_SIZE: Final = "distdbg.world_size"
ROLE: Final = "distdbg.role"
KIND: Final = "distdbg.op.kind"
FUNCTION: Final = "distdbg.op.function"
NUMBER: Final = "distdbg.op.number"
SEQ: Final = "distdbg.seq"
GROUP: Final = "distdbg.group"
GROUP_NAME: Final = "distdbg.group.name"
GROUP_SIZE: Final = "distdbg.group.size"
BACKEND: Final = "distdbg.group.backend"
DTYPE: Final = "distdbg.op.dtype"
DEVICE: Final = "distdbg.op.device"
NBYTES: Final = "distdbg.op.nbytes"
INPUTS: Final = "distdbg.op.inputs"
OUTPUTS: Final = "distdbg.op.outputs"
REDUCE_OP: Final = "distdbg.op.reduce_op"
ROOT: Final = "distdbg.op.root"
IS_ASYNC: Final = "distdbg.op.is_async"
LATE_PEER: Final = "distdbg.op.late_peer_s"
TRANSFER: Final = "distdbg.op.transfer_s"
COMM: Final = "distdbg.op.comm"
STATUS: Final = "distdbg.op.status"
KEPT: Final = "distdbg.kept"
REGION: Final = "distdbg.region"
PEER: Final = "distdbg.peer"
TAG: Final = "distdbg.tag"
VALUE: Final = "distdbg.value"
FINDING: Final = "distdbg.finding"
SEVERITY: Final = "distdbg.finding.severity"
RANKS: Final = "distdbg.finding.ranks"
VICTIMS: Final = "distdbg.finding.victims"
EVIDENCE: Final = "distdbg.finding.evidence"
ADVICE: Final = "distdbg.finding.advice"
HOW: Final = "distdbg.end.how"
EXIT_CODE: Final = "process.exit.code"
WHY: Final = "distdbg.link"
ERROR_TYPE: Final = "error.type"
#: Its value for what its rank never ended.
UNENDED: Final = "unended"
FILE: Final = "code.file.path"
LINE: Final = "code.line.number"
CODE_FUNCTION: Final = "code.function.name"
THREAD: Final = "thread.id"
MESSAGING_SYSTEM: Final = "messaging.system"
MESSAGING_TYPE: Final = "messaging.operation.type"
MESSAGING_NAME: Final = "messaging.operation.name"
MESSAGING_DESTINATION: Final = "messaging.destination.name"
MESSAGING_NBYTES: Final = "messaging.message.body.size"
SERVICE: Final = "service.name"
INSTANCE: Final = "service.instance.id"
HOST: Final = "host.name"
PID: Final = "process.pid"
PYTHON: Final = "process.runtime.version"
DISTRO: Final = "telemetry.distro.name"
DISTRO_VERSION: Final = "telemetry.distro.version"

_R, _O, _M, _S, _F, _E = (
    AttributeScope.RESOURCE,
    AttributeScope.OP,
    AttributeScope.MESSAGE,
    AttributeScope.REGION,
    AttributeScope.FINDING,
    AttributeScope.END,
)

ATTRIBUTES: Final = (
    Attribute(SERVICE, "string", (_R,), "`OTEL_SERVICE_NAME`, or `distdbg`."),
    Attribute(INSTANCE, "string", (_R,), "The run and the rank, `RUN/3`; of what the agent itself says, the run and the host."),
    Attribute(HOST, "string", (_R,), "The host of the rank."),
    Attribute(PID, "int", (_R,), "The process of the rank."),
    Attribute(PYTHON, "string", (_R,), "Its Python."),
    Attribute(DISTRO, "string", (_R,), "`distdbg`."),
    Attribute(DISTRO_VERSION, "string", (_R,), "The version that wrote the record."),
    Attribute(RUN, "string", (_R,), "The name of the run, as `distdbg ps` has it."),
    Attribute(START, "int", (_R,), "Which start of the ranks by the launcher it is, from 0."),
    Attribute(RANK, "int", (_R, _O, _S, _E), "The rank."),
    Attribute(WORLD_SIZE, "int", (_R,), "Ranks of the job."),
    Attribute(ROLE, "string", (_O, _S, _F), "`root`: the op as a whole; `rank`: what one rank did; `caller`: the same in the trace of the program; `region`, `mark` or `finding`."),
    Attribute(KIND, "string", (_O,), "`all_reduce`, `send`, `new_group` ..."),
    Attribute(FUNCTION, "string", (_O,), "The function that the program called."),
    Attribute(NUMBER, "int", (_O,), "The number of the op in the record of its rank."),
    Attribute(SEQ, "int", (_O, _F), "The number of the op in its group; of a message, among those to or from its peer."),
    Attribute(GROUP, "string", (_O, _F), "What messages call the group, as the label `group` of metrics."),
    Attribute(GROUP_NAME, "string", (_O,), "Its name, which no other group of the run has."),
    Attribute(GROUP_SIZE, "int", (_O,), "How many ranks it has."),
    Attribute(BACKEND, "string", (_O,), "Its backend."),
    Attribute(DTYPE, "string", (_O,), "The data type of its arrays."),
    Attribute(DEVICE, "string", (_O,), "Where they are."),
    Attribute(NBYTES, "int", (_O,), "The bytes that it moves in or out of the rank."),
    Attribute(INPUTS, "string[]", (_O,), "Shapes of the inputs, eight at most: `[1024, 64]`."),
    Attribute(OUTPUTS, "string[]", (_O,), "Shapes of the outputs."),
    Attribute(REDUCE_OP, "string", (_O,), "`SUM` ..."),
    Attribute(ROOT, "int", (_O,), "The root, as a rank of the job."),
    Attribute(IS_ASYNC, "boolean", (_O,), "Whether the program went on while it ran; only there if so."),
    Attribute(LATE_PEER, "double", (_O,), "Seconds until the last rank had come."),
    Attribute(TRANSFER, "double", (_O,), "Seconds from then to the end."),
    Attribute(COMM, "string", (_O,), "The name that the program gave the communication."),
    Attribute(STATUS, "string", (_O,), "`ok`, `timeout`, `mismatch` ..., or `in flight` where no end was recorded."),
    Attribute(KEPT, "string", (_O,), "Why it was kept: `head`, or of the tail `slow`, `failed`, `debugger`, `found` (a finding is about it)."),
    Attribute(REGION, "string", (_O, _S), "The name of the `span()` block, of an op the innermost that it was called in."),
    Attribute(PEER, "int", (_M,), "The other side, as a rank of the job."),
    Attribute(TAG, "int", (_M,), "The tag."),
    Attribute(MESSAGING_SYSTEM, "string", (_M,), "`distdbg`."),
    Attribute(MESSAGING_TYPE, "string", (_M,), "`send` or `receive`."),
    Attribute(MESSAGING_NAME, "string", (_M,), "`send` or `recv`."),
    Attribute(MESSAGING_DESTINATION, "string", (_M,), "The group."),
    Attribute(MESSAGING_NBYTES, "int", (_M,), "The bytes of the message."),
    Attribute(FILE, "string", (_O, _S), "The file of the line that called it."),
    Attribute(LINE, "int", (_O, _S), "The line."),
    Attribute(CODE_FUNCTION, "string", (_O, _S), "The function around it."),
    Attribute(THREAD, "int", (_O, _S), "The kernel's number of the thread."),
    Attribute(ERROR_TYPE, "string", (_O, _F, _E), "The class of the error, `MismatchError`, `OpTimeout`, `PeerLost` ...; of a finding its kind; `unended` for what its rank never ended."),
    Attribute(VALUE, "double", (_S,), "The number that was given with a mark."),
    Attribute(FINDING, "string", (_F,), "The kind of the finding: `straggler`, `mismatch` ..."),
    Attribute(SEVERITY, "string", (_F,), "`error`, `warning` or `note`."),
    Attribute(RANKS, "int[]", (_F,), "The ranks of the cause, 64 at most."),
    Attribute(VICTIMS, "int[]", (_F,), "Those that suffer from it, 64 at most."),
    Attribute(EVIDENCE, "string[]", (_F,), "What shows it, eight lines at most."),
    Attribute(ADVICE, "string", (_F,), "What to do."),
    Attribute(HOW, "string", (_E,), "How the rank ended: `returned`, `raised`, `killed` ..."),
    Attribute(EXIT_CODE, "int", (_E,), "The exit code of its process."),
    Attribute(WHY, "string", (AttributeScope.LINK,), "What the other span is: `send`, of a recv the send that it took; `op`, what the ranks did together; `caller`, the same op in the trace of the program."),
)  # fmt: skip
