"""Compiles the functions of the program to LLVM's intermediate code, side by side in several processes.

Numba compiles a function while it compiles its first caller, which has to know what the function returns. Where the
function's annotation says that, the caller need not wait: it gets a declaration, and the function is compiled for
itself, by whichever process is free. Only functions that return arrays or tuples are compiled with their callers.

Importing this module loads Numba. It changes Numba for the whole process, which must do nothing else with it.
"""
# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
import gc
import importlib
import inspect
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numba
from numba.core import bytecode, codegen, compiler, dispatcher, funcdesc, itanium_mangler, types
from numba.core.base import BaseContext
from numba.core.environment import Environment
from numba.core.registry import cpu_target
from numba.core.typing.templates import signature

from hilserver.circuit.library import standard_library
from hilserver.circuit.program import parameters_of
from hilserver.compiler.linking import GENERATED, HEAPLESS, UNWRAPPED, linked
from hilserver.compiler.lowering import FRAME, unpacking
from hilserver.compiler.sources import fingerprint
from hilserver.compiler.timing import timed
from hilserver.errors import HilserverError
from hilserver.tick.program import ENTRY_POINTS

RETURNED = {"None": types.none, "float": types.float64, "int": types.int64, "bool": types.boolean}
"""Annotations of functions that are compiled for themselves, and Numba's types of what these return."""
RARELY = (100_000, 500, 1000)
"""Thresholds of Python's garbage collection. Numba keeps nearly all that it makes: collecting as often as usual takes a
quarter of its time; never collecting takes twice the memory."""
COMPILER: Any = vars(dispatcher)["_FunctionCompiler"]
"""Numba's class that compiles one function."""
_compile_at_once = COMPILER._compile_core
NAME = "built"
"""Of the program, in the names of its functions."""


@dataclass(frozen=True)
class Wanted:
    """A function that is to be compiled for arguments of these types, with these flags of Numba."""

    symbol: str
    module: str
    qualified_name: str
    arguments: tuple[Any, ...]
    flags: Any


@dataclass(frozen=True)
class Compiled:
    """What a process gives back: the symbol of what it has compiled, modules by the symbols they define, what it wants.

    ``sources``: fingerprint of the sources from which it compiles.
    """

    symbol: str
    modules: dict[tuple[str, ...], bytes]
    wanted: list[Wanted]
    sources: str


@dataclass
class Functions:
    """All functions of the program.

    ``modules``: by the symbols they define; ``entries``: symbols of the entry points by name; ``symbols``: those of the
    functions by module and qualified name.
    """

    modules: dict[tuple[str, ...], bytes] = field(default_factory=dict)
    entries: dict[str, str] = field(default_factory=dict)
    symbols: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def bitcode(self, without: Collection[str] = ()) -> list[bytes]:
        """The modules in the order of their symbols, without those that define one of these."""
        return [code for symbols, code in sorted(self.modules.items()) if not set(without) & set(symbols)]

    def symbol(self, name: str) -> str:
        """Symbol of a linked function, by its name. Raises ValueError if there is none, or more than one."""
        generated = f"{GENERATED}{NAME}", name
        found = [symbols for each, symbols in self.symbols.items() if each == generated or each[1] == f"{name}_{NAME}"]
        (symbol,) = set().union(*found)
        return symbol


def compile_functions(processes: Executor, report: Callable[[int], None]) -> Functions:
    """Compile the entry points and all that they call; ``processes``: each of them has called `prepare` first.

    Raises HilserverError if the sources have changed since this process has started.
    """
    made = Functions()
    seen: set[str] = set()
    running: set[Future[Compiled]] = set()
    entries = {processes.submit(_compile_entry, number): entry.__name__ for number, entry in enumerate(ENTRY_POINTS)}
    running |= entries.keys()
    while running:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            compiled = future.result()
            if compiled.sources != fingerprint():
                raise HilserverError("the sources of hilserver have changed while they were compiled: try again.")
            if future in entries:
                made.entries[entries[future]] = compiled.symbol
            made.modules |= compiled.modules
            for each in compiled.wanted:
                if each.symbol not in seen:
                    seen.add(each.symbol)
                    made.symbols.setdefault((each.module, each.qualified_name), set()).add(each.symbol)
                    running.add(processes.submit(_compile, each))
        report(len(made.modules))
    return made


# --- in each process --------------------------------------------------------------------------------------------------


class _Process:
    """What a process has to compile with: the functions of the program by name; what Numba has made, what it wants."""

    def __init__(self, folder: Path) -> None:
        functions = linked(standard_library(), NAME, folder, options=UNWRAPPED)
        self.entries = functions | timed(functions)
        originals = [function.py_func for function in functions.values()]
        self.functions = {(each.__module__, each.__qualname__): each for each in originals}
        self.libraries: list[Any] = []
        self.wanted: dict[str, Wanted] = {}
        self.names: set[str] = set()

    def function(self, module: str, qualified_name: str) -> Any:
        """The function of this name; None if there is none."""
        found = self.functions.get((module, qualified_name))
        return found or getattr(importlib.import_module(module), qualified_name, None)

    def results(self, symbol: str) -> Compiled:
        """What has been made and is wanted since the last call."""
        modules = {_symbols(each._final_module): each._final_module.as_bitcode() for each in self.libraries}
        wanted = list(self.wanted.values())
        self.libraries.clear()
        self.wanted.clear()
        return Compiled(symbol, modules, wanted, fingerprint())


def _symbols(module: Any) -> tuple[str, ...]:
    return tuple(item.name for item in module.functions if not item.is_declaration)


_process: _Process


def prepare(folder: Path) -> None:
    """Prepare a process to compile functions; ``folder``: for temporary files."""
    global _process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.set_threshold(*RARELY)
    _process = _Process(folder / f"{os.getpid()}")
    fingerprint()  # of what has been imported
    _collect_libraries()
    _name_alike()
    _replace(COMPILER, "_compile_core", _declare_or_compile)


def _end_with_parent() -> None:
    """A process that waits for tasks would not notice that there will be none."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _compile_entry(number: int) -> Compiled:
    """Compile a function that calls an entry point with the arguments of a frame."""
    original = ENTRY_POINTS[number]
    function: Any = _process.entries.get(original.__name__) or numba.njit(original, **HEAPLESS)
    unpack = unpacking(tuple(parameters_of(original).values()))

    def entry(frame):  # type: ignore[no-untyped-def]
        function(*unpack(frame))

    made: Any = numba.njit(entry, **HEAPLESS, **UNWRAPPED)
    made.compile(types.void(FRAME))
    (compiled,) = made.overloads.values()
    compiled.library._ensure_finalized()
    return _process.results(compiled.fndesc.llvm_func_name)


def _compile(wanted: Wanted) -> Compiled:
    """Compile a function. Raises TypeError if it returns something else than its annotation says."""
    function = _process.function(wanted.module, wanted.qualified_name)
    _process.names.add(_name(function))
    contexts = cpu_target.typing_context, cpu_target.target_context
    made = compiler.compile_extra(*contexts, function, wanted.arguments, None, wanted.flags, {})
    made.library._ensure_finalized()
    returned, annotated = types.unliteral(made.signature.return_type), RETURNED[str(function.__annotations__["return"])]
    if returned != annotated:
        raise TypeError(f"{_name(function)} returns {returned}, but is annotated as {annotated}")
    if made.fndesc.llvm_func_name != wanted.symbol:
        raise TypeError(f"{wanted.symbol} was wanted, but {made.fndesc.llvm_func_name} is made")
    return _process.results(wanted.symbol)


def _collect_libraries() -> None:
    """Let Numba stop before it optimises and compiles."""

    def finalize(self: Any) -> None:
        self._raise_if_finalized()
        self._finalized = True
        _process.libraries.append(self)

    nowhere = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
    library = codegen.JITCodeLibrary
    _replace(library, "finalize", finalize)
    _replace(library, "_optimize_functions", lambda self, module: None)
    _replace(library, "get_pointer_to_function", lambda self, name: nowhere)
    _replace(codegen.JITCPUCodegen, "set_env", lambda self, name, env: None)


def _replace(of_numba: Any, name: str, item: Any) -> None:
    """Replace a part of Numba. Raises AttributeError if this version has none of this name."""
    getattr(of_numba, name)
    setattr(of_numba, name, item)


def _name_alike() -> None:
    """Give a function that is compiled for itself the same symbol in each process, and all others different ones.

    Numba tells functions of one name apart by a number that it counts up.
    """

    def mangler(self: Any, name: str, types: Any, *, abi_tags: Any = (), uid: int | None = None) -> str:
        number = None if name in _process.names else uid
        symbol: str = itanium_mangler.mangle(name, types, abi_tags=abi_tags, uid=number)
        return symbol

    _replace(BaseContext, "mangler", mangler)
    _replace(bytecode.FunctionIdentity, "_unique_ids", itertools.count(os.getpid() << 24))


def _declare_or_compile(self: Any, arguments: tuple[Any, ...], return_type: Any) -> Any:
    """The result for the caller of a function: a declaration, if its annotation says what it returns.

    Raises TypeError if the function is not the one that its name means.
    """
    function = self.py_func
    found = _process.function(function.__module__, function.__qualname__)
    if found is not function:
        if inspect.isfunction(found):  # both would have the same symbol
            raise TypeError(f"{_name(function)}: its module has another function of this name")
        return _compile_at_once(self, arguments, return_type)
    _process.names.add(_name(function))
    returned = RETURNED.get(str(function.__annotations__.get("return", "")))
    if returned is None:
        return _compile_at_once(self, arguments, return_type)
    flags = compiler.Flags()
    self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
    made = _declared(function, arguments, returned, flags)
    symbol = made.fndesc.llvm_func_name
    _process.wanted[symbol] = Wanted(symbol, function.__module__, function.__qualname__, arguments, flags)
    return made


def _name(function: Any) -> str:
    """The name from which Numba makes the symbol of a function."""
    return f"{function.__module__}.{function.__qualname__}"


def _declared(function: Any, arguments: tuple[Any, ...], returned: Any, flags: Any) -> Any:
    """What Numba would have as the result of compiling a function, without its code."""
    context = cpu_target.target_context
    descriptor = funcdesc.PythonFunctionDescriptor(
        native=True,
        modname=function.__module__,
        qualname=function.__qualname__,
        unique_name=_name(function),
        doc="",
        typemap=None,
        restype=returned,
        calltypes=None,
        args=inspect.getfullargspec(function).args,
        kws=(),
        mangler=context.mangler,
        argtypes=arguments,
        inline=flags.forceinline,
        noalias=flags.noalias,
        abi_tags=[flags.get_mangle_string()],
    )
    library = context.codegen().create_library(_name(function))
    library._finalized = True
    environment = Environment.from_fndesc(descriptor)
    called = context.get_executable(library, descriptor, environment)
    context.insert_user_function(called, descriptor, [library])
    return compiler.compile_result(
        typing_context=cpu_target.typing_context,
        target_context=context,
        entry_point=called,
        library=library,
        signature=signature(returned, *arguments),
        objectmode=False,
        fndesc=descriptor,
        environment=environment,
    )
