"""Compiles the program into a shared library: Python to LLVM's intermediate code by Numba, from there to machine code.

Numba compiles each function together with copies of all functions that it calls, and again in each of its callers. Here
its result is taken one step earlier, as intermediate code of single functions (`hilserver.compiler.functions`). All of
it is linked, optimised and compiled once.

Importing this module loads Numba.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import llvmlite.binding as llvm

from hilserver.circuit.library import FIRST_OWN_KIND, MAX_OWN_KINDS
from hilserver.circuit.program import SYMBOL
from hilserver.compiler.circuit_module import circuit_module
from hilserver.compiler.functions import Functions, compile_functions, prepare
from hilserver.compiler.levels import levels
from hilserver.compiler.linking import CIRCUIT_CODE
from hilserver.compiler.loading import CIRCUIT, FMI, RUNNER
from hilserver.compiler.machine_code import compile_c, compile_runner, link, write_object
from hilserver.compiler.merging import merged
from hilserver.errors import HilserverError
from hilserver.tick.program import OWN_KERNEL, OWN_TABLE
from hilserver.tick.timed import CELLS, TABLE

Progress = Callable[[str, float], None]
"""Called with the present activity and the fraction of the work that is done."""
FMI_SOURCES = Path(__file__).parent / "fmi"
"""Folder with the functions of FMI, in C."""
ABOUT = 800
"""Number of functions that Numba compiles."""
LAST_SHARE = 0.6
"""Fraction of the time that Numba takes; the rest is LLVM's."""
MOST_PROCESSES = 8
"""Each takes 0.3 GiB."""


def build(files: Mapping[str, Path], progress: Progress) -> None:
    """Compile all files of a program (`hilserver.compiler.loading.all_files_in`), into the paths given by name.

    Raises HilserverError if one of its processes is killed, or if the sources change meanwhile.
    """
    with TemporaryDirectory(prefix="hilserver-build-") as name, ThreadPoolExecutor(1) as beside:
        folder = Path(name)
        from_c = beside.submit(_compile_c, files[RUNNER], folder)
        with _processes(folder) as processes:
            made = compile_functions(processes, lambda n: progress(f"{n} functions", LAST_SHARE * min(n / ABOUT, 1.0)))
            progress("optimising", LAST_SHARE)
            circuit = processes.submit(circuit_module, made, (OWN_KERNELS, RUNTIME))
            objects = _write_objects(_one_module(made), folder, processes)
            files[CIRCUIT].write_bytes(circuit.result())
        for level, path in objects.items():
            link([path], files[level])
        first, *_ = objects  # the library of FMUs runs on every processor
        link([objects[first], *from_c.result()], files[FMI], exported="fmi2*; fmi3*;")
    progress("ready", 1.0)


@contextmanager
def _processes(folder: Path) -> Iterator[Executor]:
    """Processes that compile; after an error or Ctrl-C, what they have not begun is not done."""
    number = min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
    with ProcessPoolExecutor(number, multiprocessing.get_context("spawn"), prepare, (folder,)) as processes:
        try:
            yield processes
        except BrokenProcessPool:
            raise HilserverError(
                f"a process that compiled was killed. Is there enough memory? {number} processes take 0.3 GiB each."
            ) from None
        except BaseException:
            processes.shutdown(wait=False, cancel_futures=True)
            raise


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


def _write_objects(bitcode: bytes, folder: Path, processes: Executor) -> dict[str, Path]:
    """Compile for each level."""
    objects = {level: folder / f"{level}.o" for level in levels()}
    for done in [processes.submit(write_object, bitcode, level, path) for level, path in objects.items()]:
        done.result()
    return objects


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


def _one_module(made: Functions) -> bytes:
    """All functions in one module in which only the entry points and the table of own kernels are visible."""
    wrappers = [_wrapper(name, symbol) for name, symbol in made.entries.items()]
    module = merged("hilserver", made.bitcode(), (*wrappers, OWN_KERNELS, CIRCUIT_CALL, RUNTIME))
    for item in (*module.functions, *module.global_variables):
        if not item.is_declaration:
            own = item.name.startswith(SYMBOL) and item.name not in (OWN_KERNEL, CIRCUIT_CODE)
            item.linkage = "external" if own else "internal"
    return bytes(module.as_bitcode())
