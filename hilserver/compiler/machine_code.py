"""From LLVM's intermediate code to a shared library, for one CPU level."""

from __future__ import annotations

import ctypes.util
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from hilserver.compiler.levels import X86_64
from hilserver.errors import HilserverError


def write_shared_library(bitcode: bytes, level: str, path: Path) -> None:
    """Optimise, compile and link. Raises HilserverError if there is no linker, or if it fails."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    path.parent.mkdir(parents=True, exist_ok=True)
    code = path.with_suffix(".o")
    code.write_bytes(_machine_code(llvm.parse_bitcode(bitcode), level))
    _link(code, path)
    code.unlink()


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


def _link(code: Path, path: Path) -> None:
    mathematics = ctypes.util.find_library("m") or "libm.so.6"
    command = [*_linker(), "-shared", "-o", str(path), str(code), f"-l:{mathematics}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise HilserverError(f"the compiled program can't be linked: {' '.join(command)}: {done.stderr.strip()}")


def _linker() -> list[str]:
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "ld.lld", *(f"-L{folder}" for folder in _library_folders())]
    if compiler := shutil.which("cc") or shutil.which("gcc"):
        return [compiler]
    text = "A linker is required to compile hilserver: install the Python package ziglang or a C compiler."
    raise HilserverError(text)


def _library_folders() -> list[Path]:
    """Path of this system's C library."""
    with Path("/proc/self/maps").open() as maps:
        files = [line.split()[-1] for line in maps if "libm.so" in line or "libm-" in line or "libc.so" in line]
    return list({Path(file).parent: None for file in files})
