"""A circuit as straight-line C, for comparisons of speed: its kernels translated, all constants in place.

Each kernel and each function that it calls becomes a C function of the same equations. ``rates`` calls them with the
numbers of the circuit's parameters and places of values, so that gcc folds and inlines whatever it can.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from math import isinf
from typing import Any

from hilserver.circuit import engine as e
from hilserver.circuit.dispatch import is_pair
from hilserver.circuit.library import SUMMED, WRITTEN, Contract, Role, standard_library
from hilserver.circuit.pack import PackedCircuit

OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.And: "&&", ast.Or: "||"}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
OF_C = {
    "isinf": "isinf",
    "max": "fmax",
    "min": "fmin",
    "abs": "fabs",
    "sqrt": "sqrt",
    "tanh": "tanh",
    "exp": "exp",
    "float": "",
}
INTERPOLATE = """
static inline double interpolate(const double *table, double x) {
    int n = (int)table[0], low = 1, high = n;
    if (x <= table[low]) return table[low + n];
    if (x >= table[high]) return table[high + n];
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (table[middle] <= x) low = middle; else high = middle;
    }
    double share = (x - table[low]) / (table[high] - table[low]);
    return table[low + n] + share * (table[high + n] - table[low + n]);
}
"""


class Translation:
    """C functions for Python functions of numbers: assignments, branches, calls and results."""

    def __init__(self) -> None:
        self.texts = {"interpolate": INTERPOLATE}
        self.results = {"interpolate": 1}

    def add(self, function: Callable[..., Any]) -> int:
        """Translate a function and all that it calls; the number of its results."""
        name = function.__name__
        if name not in self.results:
            self.results[name] = 0
            (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
            assert isinstance(parsed, ast.FunctionDef)
            parsed.decorator_list = []
            self._translate(parsed, function.__globals__)
        return self.results[name]

    def _translate(self, parsed: ast.FunctionDef, names: dict[str, Any]) -> None:
        for call in (node for node in ast.walk(parsed) if isinstance(node, ast.Call)):
            assert isinstance(call.func, ast.Name)
            if call.func.id not in OF_C:
                self.add(names[call.func.id])
        returned = [node.value for node in ast.walk(parsed) if isinstance(node, ast.Return)]
        count = self.results[parsed.name] = max(self._count(value) for value in returned)
        arguments = [argument.arg for argument in parsed.args.args]
        local = {node.id for node in ast.walk(parsed) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        kinds = [f"{'const double *' if name.startswith('table') else 'double '}{name}" for name in arguments]
        outputs = [f"double *result_{k}" for k in range(count)] if count > 1 else []
        head = f"static inline {'void' if outputs else 'double'} {parsed.name}({', '.join(kinds + outputs)})"
        declared = [f"    double {name};" for name in sorted(local - set(arguments))]
        body = list(self._block(parsed.body, names, count))
        self.texts[parsed.name] = "\n".join(["", head + " {", *declared, *body, "}", ""])

    def _count(self, value: ast.expr | None) -> int:
        if isinstance(value, ast.Tuple):
            return len(value.elts)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            return self.results.get(value.func.id, 1)
        return 1

    def _block(self, body: Sequence[ast.stmt], names: dict[str, Any], count: int) -> Iterator[str]:
        for statement in body:
            yield from self._statement(statement, names, count)

    def _statement(self, s: ast.stmt, names: dict[str, Any], count: int) -> Iterator[str]:
        if isinstance(s, ast.Expr):  # the docstring
            return
        if isinstance(s, ast.If):
            yield f"    if ({self._value(s.test, names)}) {{"
            yield from self._block(s.body, names, count)
            yield "    } else {"
            yield from self._block(s.orelse, names, count)
            yield "    }"
        elif isinstance(s, ast.AugAssign):
            assert isinstance(s.target, ast.Name)
            yield f"    {s.target.id} {OPERATORS[type(s.op)]}= {self._value(s.value, names)};"
        elif isinstance(s, ast.Assign):
            (target,) = s.targets
            places = [self._value(item, names) for item in (target.elts if isinstance(target, ast.Tuple) else [target])]
            yield from self._given(s.value, [f"{place} = " for place in places], [f"&{p}" for p in places], names)
        elif isinstance(s, ast.Return):
            assert s.value is not None
            if count == 1:
                yield f"    return {self._value(s.value, names)};"
            else:
                results = [f"result_{k}" for k in range(count)]
                yield from self._given(s.value, [f"*{result} = " for result in results], results, names)
                yield "    return;"
        else:
            raise NotImplementedError(ast.dump(s))

    def _given(self, value: ast.expr, set_: list[str], places: list[str], names: dict[str, Any]) -> Iterator[str]:
        """Assign one value, or several."""
        if len(set_) == 1:
            yield f"    {set_[0]}{self._value(value, names)};"
        elif isinstance(value, ast.Tuple):
            for begin, item in zip(set_, value.elts, strict=True):
                yield f"    {begin}{self._value(item, names)};"
        else:
            assert isinstance(value, ast.Call)
            assert isinstance(value.func, ast.Name)
            given = [self._value(argument, names) for argument in value.args]
            yield f"    {value.func.id}({', '.join(given + places)});"

    def _value(self, v: ast.expr, names: dict[str, Any]) -> str:
        """An expression."""
        if isinstance(v, ast.Constant):
            assert isinstance(v.value, int | float)
            return repr(float(v.value))
        if isinstance(v, ast.Name):
            return repr(float(names[v.id])) if isinstance(names.get(v.id), int | float) else v.id
        if isinstance(v, ast.BinOp):
            if isinstance(v.op, ast.Pow):
                return f"pow({self._value(v.left, names)}, {self._value(v.right, names)})"
            return f"({self._value(v.left, names)} {OPERATORS[type(v.op)]} {self._value(v.right, names)})"
        if isinstance(v, ast.UnaryOp):
            return f"(-{self._value(v.operand, names)})"
        if isinstance(v, ast.BoolOp):
            return "(" + f" {OPERATORS[type(v.op)]} ".join(self._value(item, names) for item in v.values) + ")"
        if isinstance(v, ast.Compare):
            (operator,), (right,) = v.ops, v.comparators
            return f"({self._value(v.left, names)} {COMPARISONS[type(operator)]} {self._value(right, names)})"
        if isinstance(v, ast.IfExp):
            test, body, other = (self._value(item, names) for item in (v.test, v.body, v.orelse))
            return f"({test} ? {body} : {other})"
        if isinstance(v, ast.Call) and isinstance(v.func, ast.Name):
            given = ", ".join(self._value(argument, names) for argument in v.args)
            return f"{OF_C.get(v.func.id, v.func.id)}({given})"
        raise NotImplementedError(ast.dump(v))


def circuit_in_c(packed: PackedCircuit, inputs: Sequence[str], substeps: int) -> str:
    """The text of a header: sizes, tables, the places of these inputs, kernels, and ``rates(z, d)``."""
    ix = [int(cell) for cell in packed.index]
    contracts = {contract.kind: contract for contract in standard_library().built_in}
    calls = [ix[ix[e.CALLS] + 4 * k :][:4] for k in range(ix[e.N_CALLS])]
    translation, lines = Translation(), []
    for kind, at, first, _ in calls:
        translation.add(contracts[kind].kernel.function)
        lines += _call(contracts[kind], ix[at:], at, first, packed)
    sizes = {"N": e.N_STATES, "N_VALUES": e.N_VALUES, "N_SUMS": e.N_SUMS}
    numbers = [f"#define {name} {ix[place]}" for name, place in sizes.items()]
    numbers += [f"#define INPUTS {len(inputs)}", f"#define SUBSTEPS {substeps}"]
    return "\n".join(
        [
            *numbers,
            _array("int", "input", [packed.values.index(name) for name in inputs]),
            _array("double", "initial", [float(v) for v in packed.value[ix[e.INITIAL] :][: ix[e.N_VALUES]]]),
            *_values([float(value) for value in packed.value]),
            _array("double", "scale", [float(packed.value[ix[e.SCALE] + i]) for i in range(ix[e.N_STATES])]),
            _array("double", "lower", [float(packed.value[ix[e.LOWER] + i]) for i in range(ix[e.N_STATES])]),
            _array("double", "upper", [float(packed.value[ix[e.UPPER] + i]) for i in range(ix[e.N_STATES])]),
            _array("int", "limited", ix[ix[e.LIMITED] :][: ix[e.N_LIMITED]]),
            *_groups(ix[ix[e.GROUPED] :][: ix[e.N_GROUPED]]),
            *_elimination(ix[ix[e.ELIMINATION] :][: ix[e.N_ELIMINATION]], ix[e.N_STATES]),
            *translation.texts.values(),
            "static inline void rates(double *restrict z, double *restrict d) {",
            *_before(ix, packed),
            *lines,
            *_after(ix),
            "}",
        ]
    )


def _call(contract: Contract, slots: Sequence[int], at: int, first: int, packed: PackedCircuit) -> list[str]:
    """One call of a kernel: the order of its arguments is that of `hilserver.circuit.dispatch`."""
    slot = parameter = 0
    given = []
    for term in contract.arguments:
        if term.from_parameters:
            given.append(f"VALUE({first + parameter}, {_number(float(packed.value[first + parameter]))})")
            parameter += 1
            continue
        if is_pair(contract, term):
            given.append(f"val + {slots[slot]}")
        else:
            given.append("0.0" if term.role is Role.STEP else f"z[{slots[slot]}]")
        slot += 1
    results = [f"r{k}" for k in range(len(contract.results))]
    name = contract.kernel.function.__name__
    lines = [f"    {{ double {', '.join(results)};"]
    if len(results) == 1:
        lines.append(f"    r0 = {name}({', '.join(given)});")
    else:
        lines.append(f"    {name}({', '.join([*given, *(f'&{r}' for r in results)])});")
    for term, result in zip(contract.results, results, strict=True):
        if term.role in SUMMED:
            lines.append(f"    d[{slots[slot]}] += {result};")
        elif term.role in WRITTEN:
            lines.append(f"    z[{slots[slot]}] = {result};")
        elif term.role is Role.DERIVATIVE:
            lines.append(f"    d[{slots[slot]}] = {result};")
        slot += term.role is not Role.OBSERVABLE
    return [*lines, "    }"]


def _before(ix: Sequence[int], packed: PackedCircuit) -> Iterator[str]:
    """Pressures that are exposed, and cleared sums."""
    for content, _, pressure, _, vapour in _rows(ix, e.HYDRAULIC, e.N_HYDRAULIC, 5):
        yield f"    z[{pressure}] = fmax(z[{content}], {_number(float(packed.value[vapour]))});"
    yield f"    for (int i = {ix[e.N_STATES]}; i < {ix[e.N_STATES] + ix[e.N_CLEARED]}; i++) d[i] = 0.0;"


def _after(ix: Sequence[int]) -> Iterator[str]:
    """The rates of pressures, positions and speeds from the sums; states at a hard limit don't move beyond it."""
    for content, total, *_ in _rows(ix, e.HYDRAULIC, e.N_HYDRAULIC, 5):
        yield f"    d[{content}] = d[{total}] / d[{total + 1}];"
    for i, total in _rows(ix, e.MECHANICAL, e.N_MECHANICAL, 2):
        yield f"    d[{i}] = z[{i + 1}]; d[{i + 1}] = d[{total}] / d[{total + 1}];"
    for i in ix[ix[e.LIMITED] :][: ix[e.N_LIMITED]]:
        yield f"    if ((z[{i}] <= lower[{i}] && d[{i}] < 0.0) || (z[{i}] >= upper[{i}] && d[{i}] > 0.0)) d[{i}] = 0.0;"


def _rows(ix: Sequence[int], table: int, number: int, width: int) -> Iterator[Sequence[int]]:
    return (ix[ix[table] + width * k :][:width] for k in range(ix[number]))


def _groups(cells: Sequence[int]) -> Iterator[str]:
    """States whose columns of the Jacobian are found together, and the rows of each column."""
    first, starts, at = [0], [0], 0
    states: list[int] = []
    rows: list[int] = []
    while at < len(cells):
        count, at = cells[at], at + 1
        for _ in range(count):
            states.append(cells[at])
            rows += cells[at + 3 :][: cells[at + 2]]
            starts.append(len(rows))
            at += cells[at + 1]
        first.append(len(states))
    yield f"#define GROUPS {len(first) - 1}"
    for name, values in (("group", first), ("state", states), ("column", starts), ("row", rows)):
        yield _array("int", name, values)


def _values(values: Sequence[float]) -> Iterator[str]:
    """The parameters: with IN_MEMORY they could be changed, otherwise each is a constant in its place."""
    constant = _array("double", "val", values)
    yield f"#ifdef IN_MEMORY\n{constant.removeprefix('static const ')}\n#define VALUE(k, x) val[k]"
    yield f"#else\n{constant}\n#define VALUE(k, x) x\n#endif"


def _elimination(cells: Sequence[int], n: int) -> Iterator[str]:
    """The functions of `hilserver.circuit.elimination`, one operation after the other."""
    rows: list[tuple[int, Sequence[int], Sequence[int]]] = []
    while cells:
        right = 3 + cells[1]
        rows.append((cells[0], cells[3:right], cells[right : right + cells[2]]))
        cells = cells[right + cells[2] + 1 :]
    yield "static void factorise_structure(const double *restrict J, double *restrict a, double scale) {"
    for p, column, row in rows:
        yield f"    a[{p * n + p}] = 1.0 + scale * J[{p * n + p}];"
        for at in (*(p * n + i for i in column), *(j * n + p for j in row)):
            yield f"    a[{at}] = scale * J[{at}];"
    for p, column, row in rows:
        yield f"    a[{p * n + p}] = 1.0 / a[{p * n + p}];"
        for i in column:
            yield f"    a[{p * n + i}] *= a[{p * n + p}];"
        for j in row:
            for i in column:
                yield f"    a[{j * n + i}] -= a[{p * n + i}] * a[{j * n + p}];"
    yield "}\nstatic void solve_structure(const double *restrict a, double *restrict b) {"
    for p, column, _ in rows:
        for i in column:
            yield f"    b[{i}] -= a[{p * n + i}] * b[{p}];"
    for p, _, row in reversed(rows):
        for j in row:
            yield f"    b[{p}] -= a[{j * n + p}] * b[{j}];"
        yield f"    b[{p}] *= a[{p * n + p}];"
    yield "}"


def _array(kind: str, name: str, values: Sequence[float]) -> str:
    return f"static const {kind} {name}[] = {{{', '.join(map(_number, values))}}};"


def _number(value: float) -> str:
    if isinstance(value, float) and isinf(value):
        return "INFINITY" if value > 0.0 else "-INFINITY"
    return repr(value)
