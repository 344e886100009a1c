"""A form in one line for people: what was called with, without the name of the function. Pure."""

from __future__ import annotations

from distdbg.record.forms import Form, Listing, Shape


def show_form(form: Form) -> str:
    """'float32[4,2] -> [16], sum, root 3, on cuda'."""
    sides = [_show_shapes(form.inputs), _show_shapes(form.outputs)]
    shown = [side for side in sides if side]
    if len(shown) == 2 and shown[0] == shown[1]:
        shown.pop()
    words = [form.dtype + " -> ".join(shown)] if shown or form.dtype else []
    if form.op:
        words.append(form.op.lower())
    if form.root is not None:
        words.append(f"root {form.root}")
    for what, splits in (("in", form.input_splits), ("out", form.output_splits)):
        if splits.count:
            cut = "..." if splits.hash else ""
            words.append(f"splits {what} {list(splits.items)}{cut}")
    if form.device and form.device != "cpu":
        words.append(f"on {form.device}")
    return ", ".join(words)


def _show_shapes(shapes: Listing[Shape]) -> str:
    if not shapes.count:
        return ""
    items = [str(list(shape)).replace(" ", "") for shape in shapes.items[:4]]
    if shapes.count == len(items) == 1:
        return items[0]
    if len(set(shapes.items)) == 1 and not shapes.hash:
        return f"{shapes.count} x {items[0]}"
    return "(" + " ".join(items) + (" ..." if shapes.count > len(items) else "") + ")"
