"""What stands around a call in its source: the conditions and loops above it, and where an argument is from.

    under `if norm > CLIP` (line 17)
    in `for metric in self.metrics.values()` (line 47)
    largest = np.array([norm]) (line 18)

Pure functions over the text of a file; where it does not parse, or the line is none of it, there is nothing.
"""

from __future__ import annotations

import ast
import os
import tokenize
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from distdbg.record.printable import printable, shorten

_MAX_LETTERS: Final = 80
_MAX_ENCLOSING: Final = 2
#: The line that every script ends with.
_START: Final = "if __name__ =="
#: Larger files take too long to parse.
_MAX_NBYTES: Final = 1 << 16

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
#: How the names of ops begin; and what their second argument is, where it names a rank.
_OPS: Final = ("all_", "barrier", "broadcast", "gather", "irecv", "isend", "new_group", "recv", "reduce",
               "scatter", "send")  # fmt: skip
_PEERS: Final = {
    "broadcast": "src", "irecv": "src", "isend": "dst", "recv": "src", "reduce": "dst", "send": "dst",
}  # fmt: skip
#: Ops whose first argument is what comes out, and whose second one is what the rank gives.
_GIVEN_SECOND: Final = ("all_gather", "all_to_all", "reduce_scatter")
#: Calls that give their argument back in another form.
_MODULES: Final = ("cp", "cupy", "np", "numpy", "torch")
#: Decorators whose function does not run each time it is called.
_CACHES: Final = ("cache", "cached_property", "lru_cache")
_WRAPPERS: Final = ("list", "sorted", "tuple")
#: Returns of a function; more say too little.
_MAX_RETURNS: Final = 3
#: In what a `with` takes that keeps other threads or processes out.
_LOCKS: Final = ("lock", "mutex", "semaphore", "condition")
_Block = ast.If | Loop | ast.ExceptHandler


class ParsedSource(NamedTuple):
    """A file that was parsed."""

    tree: ast.Module
    lines: Sequence[str]


#: The files of a program, by path.
ParsedFiles = Mapping[str, ParsedSource]


#: Calls of Python alone take some hundred bytes of the C stack each, those of C code more.
_HIGH_LIMIT: Final = 10_000
#: What sets a timer, and which of its arguments is the time.
_TIMERS: Final = {"alarm": 0, "setitimer": 1}


class CallParameter(NamedTuple):
    """An argument of a call that is a parameter of the function around it: its caller has it."""

    function: str
    name: str
    place: int
    """Among the positional ones, without `self`; -1: by keyword alone."""


def parse(lines: Sequence[str]) -> ParsedSource | None:
    """None for what is no Python, or is too long."""
    text = "\n".join(lines)
    if len(text) > _MAX_NBYTES:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # of a program's own escapes in strings
            return ParsedSource(ast.parse(text), lines)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def enclosing(source: ParsedSource, line: int, most: int = _MAX_ENCLOSING) -> list[str]:
    """The conditions and loops that a line stands in, within its function, the innermost first."""
    found: list[str] = []
    for block in reversed(path_to(source.tree, line)):
        if isinstance(block, (Function, ast.ClassDef, ast.Lambda)):
            break
        is_start = isinstance(block, ast.If) and line_text(source, block.lineno).startswith(_START)
        if is_start or len(found) == most:
            break
        if not isinstance(block, _Block | ast.With) or (
            isinstance(block, ast.With) and not _is_lock(block)
        ):
            continue
        # What stands in one line with the call is shown with it.
        if block.lineno < line and block.body[0].lineno <= line:
            found.append(_say_block(source, block, line))
    return found


def _is_lock(block: ast.With) -> bool:
    taken = " ".join(ast.unparse(item.context_expr) for item in block.items).lower()
    return any(word in taken for word in _LOCKS)


def short_circuited(source: ParsedSource, line: int, name: str = "") -> str:
    """'behind `or` in `if self.steep() or self.vote()` (line 31)'; '' where the call is made in any case.

    Of the call of `name`, or of an op.
    """
    statement = path_to(source.tree, line)[-1]
    for node in ast.walk(statement) if isinstance(statement, ast.stmt) else ():
        if not isinstance(node, ast.BoolOp) or not node.lineno <= line <= node_line(node):
            continue
        behind = (one for value in node.values[1:] for one in ast.walk(value))
        called = [called_name(one) for one in behind if isinstance(one, ast.Call)]
        if name in called if name else any(one.startswith(_OPS) for one in called):
            word = "or" if isinstance(node.op, ast.Or) else "and"
            return f"behind `{word}` in `{line_text(source, line).removesuffix(':')}` (line {line})"
    return ""


def cached(source: ParsedSource, line: int) -> str:
    """'`@lru_cache` (line 20) skips this call for arguments that it knows'; '' without one."""
    for block in reversed(path_to(source.tree, line)):
        if not isinstance(block, Function):
            continue
        for one in block.decorator_list:
            called = one.func if isinstance(one, ast.Call) else one
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in _CACHES:
                text = line_text(source, one.lineno)
                return f"`{text}` (line {one.lineno}) skips this call for arguments that it knows"
        break
    return ""


def argument_origin(
    source: ParsedSource, line: int, first: Sequence[str] = (), callee: CallParameter | None = None
) -> str | CallParameter | None:
    """'packed = x.astype(y) (line 32)': what assigned the argument of the call at a line last, if a name.

    `first`: keywords that matter more than the first argument. `callee`: the parameter of the function that
    is called there, of whose argument it is asked. A Parameter: the caller has to be asked.
    """
    function = function_at(source, line)
    scope = function or source.tree
    given = _argument(scope, line, first, callee)
    if given is None:
        return None
    name = _name_in(given)
    if name is None:
        return _returned(source, given) or _say_attribute(source, line, given) or None
    bound = [at for at in bound_at(scope, name) if at <= line]
    if not bound:
        return None if function is None else parameter_of(function, name)
    last = max(bound)
    if loop := _loop_over(source, last, line):
        name, line = loop  # what it goes over
        last = max((at for at in bound_at(scope, name) if at < line), default=0)
    if not last or not _has_run(source, scope, name, last, line):
        return None
    return f"{line_text(source, last)} (line {last})"


def _say_attribute(source: ParsedSource, line: int, given: ast.expr) -> str:
    """'self.owner is set by `self.owner = {...}` (line 11)', of it or of what is taken from it; ''."""
    match given:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            pass
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id="self"), attr=name)):
            pass
        case _:
            return ""
    lines = lines_of_attribute(source, line, name)
    if len(lines) != 1:
        return ""  # any of them may be the one
    return f"self.{name} is set by `{line_text(source, lines[0])}` (line {lines[0]})"


def lines_of_attribute(source: ParsedSource, line: int, name: str) -> list[int]:
    """What sets it in the class around the line: in its methods, else where it is made."""
    around = [one for one in path_to(source.tree, line) if isinstance(one, ast.ClassDef)]
    made: list[int] = []
    later: list[int] = []
    for method in around[-1].body if around else ():
        if isinstance(method, Function):
            lines = made if method.name == "__init__" else later
            lines += sorted(set(_stores(method, name)))
    return later or made


def _stores(method: ast.AST, name: str) -> Iterator[int]:
    for node in ast.walk(method):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=known, ctx=ast.Store()):
                if known == name:
                    yield node.lineno


def _loop_over(source: ParsedSource, bound: int, line: int) -> tuple[str, int] | None:
    """The variable that a loop goes over, and its line: one that gives a name its value, around the line."""
    block = path_to(source.tree, bound)[-1]
    if not isinstance(block, ast.For | ast.AsyncFor) or block.lineno != bound or line == bound:
        return None
    name = _name_in(block.iter)
    return (name, bound) if name and line <= node_line(block) else None


def _has_run(source: ParsedSource, scope: ast.AST, name: str, bound: int, line: int) -> bool:
    """Whether the assignment at `bound` is certainly the one whose value is used at `line`."""
    path, here = path_to(source.tree, bound), path_to(source.tree, line)
    assigns = isinstance(path[-1], ast.Assign | ast.AnnAssign | ast.AugAssign)
    if not assigns or node_line(path[-1]) >= line:
        return False
    for block in path[:-1]:
        if not any(block is one for one in here):
            return False  # in a branch, or a loop, that the line is not in
        if isinstance(block, ast.If) and is_in_body(block, bound) is not is_in_body(block, line):
            return False
    # Bound again behind the line, in a loop around it: so it is from the second round on.
    loops = [block for block in here if isinstance(block, Loop)]
    return not any(
        line < again <= node_line(loop) for again in bound_at(scope, name) for loop in loops
    )


def bound_at(scope: ast.AST, name: str) -> Iterator[int]:
    """The lines that give a name a value, by an assignment or otherwise."""
    for node in own_nodes(scope):
        match node:
            case ast.Name(id=known, ctx=ast.Store()) if known == name:
                yield node.lineno
            case ast.ExceptHandler(name=known) if known == name:
                yield node.lineno
            case ast.MatchAs(name=known) | ast.MatchStar(name=known) if known == name:
                yield node.lineno


def bound_before(source: ParsedSource, line: int, name: str) -> list[int]:
    """The lines above a line, in the function around it, that give a name a value."""
    scope = function_at(source, line) or source.tree
    return sorted({at for at in bound_at(scope, name) if at < line})


def imported_beside(source: ParsedSource, file: str) -> list[str]:
    """The files that a file may import from its own folder, which a program's modules mostly lie in."""
    found: list[str] = []
    for node in ast.walk(source.tree):
        match node:
            case ast.ImportFrom(module=str(module)):
                found.append(module)
            case ast.Import():
                found += [one.name for one in node.names]
    folder = os.path.dirname(file)
    return [os.path.join(folder, *name.split(".")) + ".py" for name in dict.fromkeys(found)]


def timers_in(source: ParsedSource) -> list[int]:
    """The lines that set a timer of the process: signal.alarm(limit), not the alarm(0) that cancels it."""
    found = set()
    for node in ast.walk(source.tree):
        at = _TIMERS.get(called_name(node)) if isinstance(node, ast.Call) else None
        if at is None or not isinstance(node, ast.Call) or len(node.args) <= at:
            continue
        time = node.args[at]
        if not isinstance(time, ast.Constant) or time.value:
            found.add(node.lineno)
    return sorted(found)


def raised_limits_in(source: ParsedSource) -> list[int]:
    """The lines that let Python's calls go far deeper than its default: sys.setrecursionlimit(10**6)."""
    found = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and called_name(node) == "setrecursionlimit" and node.args:
            limit = node.args[0]
            value = limit.value if isinstance(limit, ast.Constant) else _HIGH_LIMIT
            if isinstance(value, int) and value >= _HIGH_LIMIT:
                found.add(node.lineno)
    return sorted(found)


def pipe_defaults_in(source: ParsedSource) -> list[int]:
    """The lines that let SIGPIPE end the process: signal.signal(SIGPIPE, SIG_DFL)."""
    return sorted(
        node.lineno
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and called_name(node) == "signal" and len(node.args) == 2
        if [ast.unparse(one).rpartition(".")[2] for one in node.args] == ["SIGPIPE", "SIG_DFL"]
    )


def handlers_in(source: ParsedSource) -> set[str]:
    """The functions that handle signals: `self.on_alarm` of signal.signal(SIGALRM, self.on_alarm)."""
    return {
        given.attr if isinstance(given, ast.Attribute) else given.id
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and called_name(node) == "signal" and len(node.args) == 2
        if isinstance(given := node.args[1], ast.Attribute | ast.Name)
    }


def kills_in(source: ParsedSource) -> list[int]:
    """The lines that send a signal by os.kill or os.killpg."""
    calls = (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    return sorted(
        {
            node.lineno
            for node in calls
            if called_name(node) in ("kill", "killpg") and len(node.args) == 2
        }
    )


def is_in_body(block: ast.If, line: int) -> bool:
    """Whether a line within an `if` is where its condition holds."""
    return block.body[0].lineno <= line <= node_line(block.body[-1])


def say_condition(source: ParsedSource, line: int, block: Loop | Function) -> str:
    """'under `if a == 0` (line 3)': the innermost condition within a block that a line stands under; ''."""
    path = path_to(source.tree, line)
    at = next((at for at, node in enumerate(path) if node is block), len(path))
    inner = [node for node in path[at + 1 :] if isinstance(node, ast.If | ast.ExceptHandler)]
    return _say_block(source, inner[-1], line) if inner else ""


def node_line(node: ast.AST) -> int:
    """Its last line: a call within its own assignment is not behind it."""
    last: int | None = getattr(node, "end_lineno", None)
    first: int = getattr(node, "lineno", 0)
    return first if last is None else last


def path_to(tree: ast.Module, line: int) -> list[ast.AST]:
    """The nodes that a line is in, the outermost first."""
    path: list[ast.AST] = []
    node: ast.AST | None = tree
    while node is not None:
        path.append(node)
        node = next((one for one in ast.iter_child_nodes(node) if _holds(one, line)), None)
    return path


def function_at(source: ParsedSource, line: int) -> Function | None:
    """The innermost function around a line."""
    path = path_to(source.tree, line)
    return next((one for one in reversed(path) if isinstance(one, Function)), None)


def _holds(node: ast.AST, line: int) -> bool:
    is_block = isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case))
    if isinstance(node, ast.match_case):
        return node.pattern.lineno <= line <= node_line(node.body[-1])
    return is_block and getattr(node, "lineno", line + 1) <= line <= node_line(node)


def _say_block(source: ParsedSource, block: _Block | ast.With, line: int) -> str:
    word = "in" if isinstance(block, (Loop, ast.With)) else "under"
    head = f"`{line_text(source, block.lineno).removesuffix(':')}` (line {block.lineno})"
    other = getattr(block, "orelse", [])
    if other and other[0].lineno <= line <= node_line(other[-1]):
        return f"under `else` of {head}"
    return f"{word} {head}"


def line_text(source: ParsedSource, line: int) -> str:
    """A line as it stands there, without its comment."""
    text = source.lines[line - 1].strip() if 0 < line <= len(source.lines) else ""
    with suppress(tokenize.TokenError, SyntaxError):  # a line of several ends amid a bracket
        for token in tokenize.generate_tokens(iter([text]).__next__):
            if token.type == tokenize.COMMENT:
                text = text[: token.start[1]].rstrip()
                break
    return shorten(printable(text), _MAX_LETTERS)


def quote_line(source: ParsedSource, file: str, line: int) -> str:
    """'`x = 1` (line 3 of job.py)'."""
    return f"`{line_text(source, line)}` ({line_of_file(file, line)})"


def line_of_file(file: str, line: int) -> str:
    """'line 3 of job.py'."""
    return f"line {line} of {os.path.basename(file)}"


def _argument(
    scope: ast.AST, line: int, first: Sequence[str], callee: CallParameter | None
) -> ast.expr | None:
    calls = [
        node
        for node in own_nodes(scope)
        if isinstance(node, ast.Call) and node.lineno <= line <= node_line(node)
    ]
    if callee is not None:
        calls = [call for call in calls if called_name(call) == callee.function]
        first = (callee.name,)
    else:  # of several calls at a line, that of the op
        calls = [call for call in calls if called_name(call).startswith(_OPS)] or calls
    for call in calls:
        keywords = {word.arg: word.value for word in call.keywords if word.arg}
        wanted = [keywords[key] for key in first if key in keywords]
        peer = _PEERS.get(called_name(call))
        if callee is None and peer in first and len(call.args) > 1:
            wanted.append(call.args[1])
        is_second = callee is None and called_name(call).startswith(_GIVEN_SECOND)
        place = int(is_second) if callee is None else callee.place
        if 0 <= place < len(call.args):
            wanted.append(call.args[place])
        if wanted:
            return wanted[0]
    return None


def _name_in(given: ast.expr) -> str | None:
    """Return the variable in `z`, `np.ascontiguousarray(z)` or `z.contiguous()`."""
    match given:
        case ast.Name(id=name):
            return name
        case ast.Call(func=func, args=[ast.Name(id=name)]) if _is_of_library(func):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name)), args=[]):
            return name
    return None


def _is_of_library(function: ast.expr) -> bool:
    """Whether what it returns is its argument in another form: np.asarray, list."""
    match function:
        case ast.Attribute(value=ast.Name(id=module)):
            return module in _MODULES
        case ast.Name(id=name):
            return name in _WRAPPERS
    return False


def _returned(source: ParsedSource, given: ast.expr) -> str:
    """'from column(): `return np.zeros(n)` (line 37) or `return field` (line 40)'; '' for other calls."""
    name = called_name(given) if isinstance(given, ast.Call) else ""
    defined = [
        node for node in ast.walk(source.tree) if isinstance(node, Function) and node.name == name
    ]
    if len(defined) != 1:  # of another file, or several classes have one
        return ""
    lines = [
        node.lineno for node in own_nodes(defined[0]) if isinstance(node, ast.Return) and node.value
    ]
    if not 0 < len(lines) <= _MAX_RETURNS:
        return ""
    said = (f"`{line_text(source, line)}` (line {line})" for line in sorted(lines))
    return f"from {name}(): {' or '.join(said)}"


def called_name(call: ast.Call) -> str:
    """'draw' of `net.draw(x)`; '' for what is no name."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, without the functions in it."""
    left = [*ast.iter_child_nodes(scope)][::-1]
    while left:  # no recursion: an expression may be nested deeply
        node = left.pop()
        if not isinstance(node, (Function, ast.ClassDef, ast.Lambda)):
            yield node
            left += [*ast.iter_child_nodes(node)][::-1]


def argument_for(call: ast.Call, parameter: CallParameter) -> ast.expr | None:
    """What a call gives a parameter of the function that it calls."""
    named = {word.arg: word.value for word in call.keywords}
    if parameter.name in named:
        return named[parameter.name]
    return call.args[parameter.place] if 0 <= parameter.place < len(call.args) else None


def parameter_of(function: Function, name: str) -> CallParameter | None:
    """None for a name that is none of its parameters."""
    named = function.args
    places = [one.arg for one in (*named.posonlyargs, *named.args)]
    if places and places[0] in ("self", "cls"):
        places = places[1:]
    if name in places:
        return CallParameter(function.name, name, places.index(name))
    return (
        CallParameter(function.name, name, -1)
        if name in {a.arg for a in named.kwonlyargs}
        else None
    )
