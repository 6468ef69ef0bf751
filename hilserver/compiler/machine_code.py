"""From LLVM's intermediate code, and from C, to shared libraries."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from hilserver.compiler.levels import X86_64
from hilserver.compiler.sources import fingerprint
from hilserver.errors import HilserverError

RUNNER_SOURCES = Path(__file__).parent / "runner"
"""Folder with the runner, in C."""
OLDEST_GLIBC = ".2.28"
"""As an ending of a target: the runner itself needs no newer one. (The shared libraries need 2.29.)"""


def write_object(bitcode: bytes, level: str, path: Path) -> None:
    """Optimise and compile for a CPU level."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    path.write_bytes(_machine_code(llvm.parse_bitcode(bitcode), level))


def _machine_code(module: Any, level: str) -> bytes:
    """Optimise and compile, without any change of floating-point results (no contraction, no reassociation)."""
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(
        cpu=level if level.startswith(X86_64) else "generic", opt=3, reloc="pic", codemodel="default"
    )
    module.data_layout = str(machine.target_data)
    for speed, vectorise in ((0, False), (3, True)):  # first inline and simplify, as Numba does
        options = llvm.create_pipeline_tuning_options(speed_level=speed)
        options.loop_vectorization, options.slp_vectorization = vectorise, False
        builder = llvm.create_pass_builder(machine, options)
        passes = builder.getModulePassManager()
        if not vectorise:
            passes.add_loop_rotate_pass()
            passes.add_instruction_combine_pass()
            passes.add_jump_threading_pass()
        passes.run(module, builder)
    return bytes(machine.emit_object(module))


def link(objects: Sequence[Path], path: Path, exported: str = "") -> None:
    """Make a shared library of object files. Raises HilserverError if there is no linker, or if it fails.

    ``exported``: the only names that it exports, as in a version script of a linker (``fmi2*; fmi3*;``); default: all.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mathematics = ctypes.util.find_library("m") or "libm.so.6"
    command = [*linker(), "-shared", "-o", str(path), *map(str, objects), f"-l:{mathematics}"]
    if exported:
        script = objects[-1].with_suffix(".exported")
        script.write_text(f"{{ global: {exported} local: *; }};\n")
        option = f"--version-script={script}"
        command += ["-l:libc.so.6", f"-Wl,{option}" if len(linker()) == 1 else option]
    _run(command, "the compiled program can't be linked")


def compile_c(source: Path, level: str, path: Path) -> None:
    """Compile a file of C for a CPU level. Raises HilserverError if there is no compiler, or if it fails."""
    options = ["-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-c", str(source), "-o"]
    _run([*_c_compiler(level), *options, str(path)], f"{source.name} can't be compiled", _cache_beside(path))


def compile_runner(level: str, path: Path, folder: Path) -> None:
    """Compile the runner, a program in C that loads the shared library of a level (`compiler/runner/`).

    ``folder``: for temporary files. Raises HilserverError if there is no compiler, or if it fails.
    """
    if not level.startswith(X86_64):  # there is none: its shared memory relies on the store order of x86-64
        path.write_bytes(b"")
        return
    sources = sorted(map(str, RUNNER_SOURCES.glob("*.c")))
    options = ["-std=c11", "-O2", "-fPIE", "-pie", "-s", f'-DHILSERVER_FINGERPRINT="{fingerprint()}"', *sources]
    made = folder / "runner"
    command = [*_c_compiler(level, OLDEST_GLIBC), *options, "-ldl", "-lpthread", "-lm", "-o", str(made)]
    _run(command, "the runner can't be compiled", _cache_beside(made))
    shutil.copy(made, path)


def _run(command: Sequence[str], problem: str, environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise HilserverError(f"{problem}: {' '.join(command)}: {done.stderr.strip()}")


def _cache_beside(path: Path) -> dict[str, str]:
    """The environment in which the C compiler of ziglang writes nothing but beside this file."""
    folder = str(path.parent / "zig")
    own = {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}
    return os.environ | own


def _c_compiler(level: str, glibc: str = "") -> list[str]:
    """The C compiler. ``glibc``: the oldest version of the C library that a program needs, if it can be chosen."""
    if importlib.util.find_spec("ziglang") is not None:
        machine, cpu = platform.machine(), level.replace("-v", "_v").replace("x86-64", "x86_64")
        target = ["-target", f"{machine}-linux-gnu{glibc}", *([f"-mcpu={cpu}"] if level.startswith(X86_64) else [])]
        return [sys.executable, "-m", "ziglang", "cc", *target, "-fno-sanitize=all"]
    return [_found_compiler()]


def linker() -> list[str]:
    """The command of a linker with the folders of this system's C library, or else that of a compiler, which links.

    Raises HilserverError if there is neither.
    """
    folders = [f"-L{folder}" for folder in _library_folders()]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "ld.lld", *folders]
    if linker := shutil.which("ld") or shutil.which("ld.lld"):
        return [linker, *folders]
    return [_found_compiler()]


def _found_compiler() -> str:
    if compiler := shutil.which("cc") or shutil.which("gcc"):
        return compiler
    text = (
        "A linker is required: install ld (on Debian the package binutils), the Python package ziglang or a C compiler."
    )
    raise HilserverError(text)


def _library_folders() -> list[Path]:
    """Folders of this system's C library."""
    with Path("/proc/self/maps").open() as maps:
        files = [line.split()[-1] for line in maps if "libm.so" in line or "libm-" in line or "libc.so" in line]
    return list({Path(file).parent: None for file in files})
