"""Planner: from a Call on this rank's arrays to a native Plan, made once per shape.

A Plan carries what to do, the fingerprint that must be equal on all ranks, what this rank says of the
call when ranks differ, and what the record says of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distdbg.check.explain import describe
from distdbg.check.options import HAVE_EQUAL_OUTPUTS
from distdbg.check.signature import fingerprint, signature
from distdbg.native import Form, Plan, View
from distdbg.ops.call import Call, Kind
from distdbg.ops.cuts import Cut, cut_blocks, is_input_cut, is_output_cut
from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import check_reduce
from distdbg.record.forms import write_form
from distdbg.runtime.backends import compile as compiling
from distdbg.runtime.plan import Topology
from distdbg.runtime.plan.make import make_plan


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes the plans of one rank of one group."""

    rank: int
    size: int
    #: The global ranks of the group's ranks, for words.
    names: Sequence[int]
    topology: Topology

    def make(self, call: Call, inputs: Sequence[View], outputs: Sequence[View]) -> Plan:
        """Compile the plan of a call; UsageError for a reduction that its dtype does not have."""
        views = [*inputs, *outputs]
        dtype = views[0].dtype if views else -1
        if call.op is not None and dtype >= 0:
            check_reduce(call.op, Dtype(dtype))
        in_cuts, out_cuts = self._cuts(call, inputs, outputs)
        facts = signature(call, inputs, outputs, in_cuts, out_cuts)
        if call.adds_as_gloo(dtype):
            dtype = Dtype(dtype).part  # it cuts complex numbers as twice as many real ones
        problem = compiling.problem_of(call, dtype, in_cuts, out_cuts, self.rank, self.size)
        plan = make_plan(problem, self.topology)
        return Plan(
            [compiling.step_tuple(step) for step in plan.steps],
            in_cuts,
            out_cuts,
            call.op.code if call.op is not None else 0,
            dtype if dtype >= 0 else int(Dtype.uint8),
            fingerprint(facts),
            self.size,
            self.topology.slot_nbytes,
            self._words(call, inputs, facts, in_cuts, out_cuts),
            self._form(call, inputs, outputs, facts),
            call.part is not None and call.part.place > 0,
            call.kind is not Kind.BROADCAST or call.root == self.rank,
            call.kind in HAVE_EQUAL_OUTPUTS,
            compiling.in_place_for(problem, self.topology),
        )

    def _cuts(
        self, call: Call, inputs: Sequence[View], outputs: Sequence[View]
    ) -> tuple[list[Cut], list[Cut]]:
        return (
            cut_blocks(inputs, call.input_splits, self.size, is_input_cut(call.kind)),
            cut_blocks(outputs, call.output_splits, self.size, is_output_cut(call.kind)),
        )

    def _words(
        self,
        call: Call,
        inputs: Sequence[View],
        facts: Mapping[str, Any],
        in_cuts: Sequence[Cut],
        out_cuts: Sequence[Cut],
    ) -> bytes:
        """What this rank says of its call when ranks differ."""
        if "root" in facts:
            facts = {**facts, "root": self.names[call.root]}
        sends = expects = None
        if call.kind is Kind.ALL_TO_ALL:
            itemsize = Dtype(inputs[0].dtype).itemsize if inputs and inputs[0].dtype >= 0 else 1
            sends = [nbytes // itemsize for _, _, nbytes in in_cuts]
            expects = [nbytes // itemsize for _, _, nbytes in out_cuts]
        return describe(facts, call.function, sends, expects)

    def _form(
        self,
        call: Call,
        inputs: Sequence[View],
        outputs: Sequence[View],
        facts: dict[str, Any],
    ) -> Form:
        """What the record says of all calls like this one."""
        name = call.name or call.kind.label
        nbytes = max(sum(view.nbytes for view in inputs), sum(view.nbytes for view in outputs))
        dtype = facts.get("dtype", "")
        text = write_form(
            name=name,
            kind=call.kind.label,
            dtype=dtype,
            device="cpu",
            op=facts.get("op", ""),
            sums=facts.get("sums", ""),
            root=self.names[call.root] if call.root >= 0 else None,
            inputs=[view.shape for view in inputs],
            outputs=[view.shape for view in outputs],
            input_splits=call.input_splits,
            output_splits=call.output_splits,
            nbytes=nbytes,
            part=None if call.part is None else (call.part.place, len(call.part.contents)),
        )
        return Form(text, name, int(call.kind), nbytes, fingerprint(facts), dtype)


def message_form(is_send: bool, view: View) -> Form:
    """The form of a send or recv of such an array. A function, so that no cycle is made."""
    kind = Kind.SEND if is_send else Kind.RECV
    dtype = Dtype(view.dtype).label if view.dtype >= 0 else "bytes"
    text = write_form(
        name=kind.label,
        kind=kind.label,
        dtype=dtype,
        device="cpu",
        inputs=[view.shape] if is_send else (),
        outputs=() if is_send else [view.shape],
        nbytes=view.nbytes,
    )
    return Form(text, kind.label, int(kind), view.nbytes, 0, dtype)
