"""Compiles the program into a shared library: Python to LLVM's intermediate code by Numba, from there to machine code.

Numba compiles each function together with copies of all functions that it calls, and again in each of its callers. Here
its result is taken one step earlier, as intermediate code of single functions. All of it is linked, optimised and
compiled once.

Importing this module loads Numba. It changes Numba for the whole process, which must do nothing else with it: `build`
belongs in a separate process (``python -m hilserver.compiler``).
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import llvmlite.binding as llvm
import numba
from numba.core import codegen, types

from hilserver.circuit.library import FIRST_OWN_KIND, MAX_OWN_KINDS, standard_library
from hilserver.circuit.program import SYMBOL, Parameter, parameters_of
from hilserver.compiler.circuit_module import circuit_module
from hilserver.compiler.levels import levels
from hilserver.compiler.linking import CIRCUIT_CODE, HEAPLESS, UNWRAPPED, linked
from hilserver.compiler.loading import CIRCUIT, FMI, RUNNER
from hilserver.compiler.lowering import FRAME, unpacking
from hilserver.compiler.machine_code import compile_c, compile_runner, link, write_object
from hilserver.compiler.merging import copies_of, merged
from hilserver.compiler.timing import timed
from hilserver.tick.program import ENTRY_POINTS, OWN_KERNEL, OWN_TABLE
from hilserver.tick.timed import CELLS, TABLE

Progress = Callable[[str, float], None]
"""Called with the present activity and the fraction of the work that is done."""
FMI_SOURCES = Path(__file__).parent / "fmi"
"""Folder with the functions of FMI, in C."""
ABOUT = 800
"""Number of functions that Numba compiles."""
LAST_SHARE = 0.85
"""Fraction of the time that Numba takes; the rest is LLVM's."""
RARELY = (100_000, 500, 1000)
"""Thresholds of Python's garbage collection. Numba keeps nearly all that it makes: collecting as often as usual takes a
quarter of its time; never collecting takes twice the memory."""


def build(files: Mapping[str, Path], progress: Progress) -> None:
    """Compile all files of a program (`hilserver.compiler.loading.all_files_in`), into the paths given by name."""
    gc.set_threshold(*RARELY)
    with TemporaryDirectory(prefix="hilserver-build-") as name, ThreadPoolExecutor(1) as beside:
        folder = Path(name)
        from_c = beside.submit(_compile_c, files[RUNNER], folder)
        bitcode = _bitcode(files[CIRCUIT], folder, progress)
        progress("optimising", LAST_SHARE)
        _write(bitcode, from_c.result(), files, folder)
    progress("ready", 1.0)


def _bitcode(circuit: Path, folder: Path, progress: Progress) -> bytes:
    """The intermediate code of the whole program; that of a single circuit is written to the file ``circuit``."""
    libraries = _libraries_of_numba(lambda n: progress(f"{n} functions", LAST_SHARE * min(n / ABOUT, 1.0)))
    functions = linked(standard_library(), "built", folder, options=UNWRAPPED)
    functions |= timed(functions)
    wrappers = []
    for function in ENTRY_POINTS:
        name, parameters = function.__name__, tuple(parameters_of(function).values())
        entry = _entry(functions.get(name) or numba.njit(function, **HEAPLESS), parameters)
        wrappers.append(_wrapper(name, entry))
    circuit.write_bytes(circuit_module(libraries, functions, (OWN_KERNELS, RUNTIME)))
    code: bytes = _one_module(libraries, wrappers).as_bitcode()
    return code


def _compile_c(runner: Path, folder: Path) -> list[Path]:
    """Compile what is written in C: the runner, and the functions of FMI, of which the object files are returned.

    They run on every processor: they are compiled for the first level.
    """
    first, *_ = levels()
    compile_runner(first, runner, folder)
    objects = {source: folder / f"{source.stem}.o" for source in sorted(FMI_SOURCES.glob("*.c"))}
    for source, path in objects.items():
        compile_c(source, first, path)
    return list(objects.values())


def _write(bitcode: bytes, fmi: Sequence[Path], files: Mapping[str, Path], folder: Path) -> None:
    """Compile for each level and link. The library of FMUs runs on every processor: it is that of the first level."""
    objects = {level: folder / f"{level}.o" for level in levels()}
    with ProcessPoolExecutor(len(objects), multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(write_object, bitcode, level, path) for level, path in objects.items()]:
            done.result()
    for level, path in objects.items():
        link([path], files[level])
    first, *_ = objects
    link([objects[first], *fmi], files[FMI], exported="fmi2*; fmi3*;")


def _libraries_of_numba(report: Callable[[int], None]) -> list[Any]:
    """Let Numba stop before it optimises and compiles; returns the list in which its code will collect."""
    made: list[Any] = []

    def finalize(self: Any) -> None:
        self._raise_if_finalized()
        self._finalized = True
        made.append(self)
        report(len(made))

    nowhere = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
    library: Any = codegen.JITCodeLibrary
    library.finalize = finalize
    library._optimize_functions = lambda self, module: None
    library.get_pointer_to_function = lambda self, name: nowhere
    codegen.JITCPUCodegen.set_env = lambda self, name, env: None  # type: ignore[method-assign]
    return made


def _entry(function: Any, parameters: Sequence[Parameter]) -> str:
    """Compile a function that calls ``function`` with the arguments of a frame; its symbol."""
    unpack = unpacking(parameters)

    def entry(frame):  # type: ignore[no-untyped-def]
        function(*unpack(frame))

    made: Any = numba.njit(entry, **HEAPLESS, **UNWRAPPED)
    made.compile(types.void(FRAME))
    (compiled,) = made.overloads.values()
    compiled.library._ensure_finalized()
    return str(compiled.fndesc.llvm_func_name)


def _wrapper(name: str, symbol: str) -> str:
    """Intermediate code of a C function that calls a function of Numba; it gives 0, or Numba's status of an error.

    While it runs, subnormal numbers count as zero. ``noinline`` keeps its operations between the changes of the mode.
    """
    enter, leave = (FLUSH, RESTORE) if llvm.get_process_triple().startswith("x86_64") else ("", "")
    return f"""
declare i32 @"{symbol}"(ptr, ptr, ptr)
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define i32 @{SYMBOL}{name}(ptr %frame) {{
  %result = alloca ptr
  %error = alloca ptr
{enter}
  %status = call i32 @"{symbol}"(ptr %result, ptr %error, ptr %frame) noinline
{leave}
  ret i32 %status
}}
"""


FLUSH = f"""
  %usual = alloca i32
  %flushing = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %usual)
  %mode = load i32, ptr %usual
  %zero = or i32 %mode, {0x8040}
  store i32 %zero, ptr %flushing
  call void @llvm.x86.sse.ldmxcsr(ptr %flushing)
"""
"""Set the flags FTZ (results) and DAZ (operands) of the thread's register MXCSR."""
RESTORE = """
  call void @llvm.x86.sse.ldmxcsr(ptr %usual)
"""

RUNTIME = """
define void @NRT_MemInfo_call_dtor(ptr %info) {
  ret void
}
"""
"""What Numba's memory runtime would do with an array that compiled code owns. There is none."""
OWN_KERNELS = f"""
@{TABLE} = global [{CELLS} x i64] zeroinitializer
@{OWN_TABLE} = global [{MAX_OWN_KINDS} x ptr] zeroinitializer
define i32 @{OWN_KERNEL}(i64 %kind, ptr %ix, ptr %val, ptr %z, ptr %y, ptr %d, i64 %a, i64 %p, i64 %r) {{
  %n = sub i64 %kind, {FIRST_OWN_KIND}
  %place = getelementptr [{MAX_OWN_KINDS} x ptr], ptr @{OWN_TABLE}, i64 0, i64 %n
  %kernel = load ptr, ptr %place
  %result = alloca ptr
  %error = alloca ptr
  %status = call i32 %kernel(ptr %result, ptr %error, ptr %ix, ptr %val, ptr %z, ptr %y, ptr %d, i64 %a, i64 %p, i64 %r)
  ret i32 %status
}}
"""
_GIVEN = "ptr %val, ptr %z, ptr %y, ptr %work, ptr %chambers, i64 %cells, i64 %steps, double %h, i64 %ports"
CIRCUIT_CALL = f"""
define i32 @{CIRCUIT_CODE}(ptr %code, {_GIVEN}) {{
  %status = call i32 %code({_GIVEN})
  ret i32 %status
}}
"""


def _one_module(libraries: Sequence[Any], wrappers: Sequence[str]) -> Any:
    """All functions in one module in which only the entry points and the table of own kernels are visible."""
    texts = (*wrappers, OWN_KERNELS, CIRCUIT_CALL, RUNTIME)
    module = merged("hilserver", copies_of(libraries), texts)
    for item in (*module.functions, *module.global_variables):
        if not item.is_declaration:
            own = item.name.startswith(SYMBOL) and item.name not in (OWN_KERNEL, CIRCUIT_CODE)
            item.linkage = "external" if own else "internal"
    return module
