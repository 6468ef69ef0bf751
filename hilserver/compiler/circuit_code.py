"""Code that is compiled for one circuit alone: where it is stored, how it is made, and how a circuit gets it.

Every circuit runs without it, too, with the same results, bit for bit. The code saves computing time, and takes some
seconds to make; it is made once and kept in the cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import numpy as np

from hilserver.circuit.engine import CALLS, CODE, N_CALLS, N_SAMPLED, SAMPLED
from hilserver.circuit.library import FIRST_OWN_KIND, MAX_OWN_KINDS
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import SYMBOL, Program
from hilserver.compiler.loading import level_used
from hilserver.compiler.seal import is_sealed, require_seal
from hilserver.compiler.sources import cache_folder, cache_root, fingerprint
from hilserver.compiler.unused import note_use
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Indices
from hilserver.tick.program import OWN_TABLE

_log = logging.getLogger(__name__)
ENTRY = SYMBOL + "circuit"
"""Symbol of the code in its shared library."""
FILE = "circuit.so"
PREFIX = "circuit-"
"""Of the names of the folders with such code."""
COMPILE = (sys.executable, "-m", "hilserver.compiler.specialising")
"""Command that compiles the code for a circuit, whose index it reads; the code is in the cache then."""
BESIDE_A_LOOP = "--beside-a-loop"
"""Its option: at the lowest priority."""


def can_compile() -> bool:
    """Whether LLVM is installed, which compiles the code."""
    return importlib.util.find_spec("llvmlite") is not None


def compiled_file(index: Indices) -> Path | None:
    """The shared library with the code for circuits of this index, if it has been compiled.

    Raises HilserverError if the one in the cache is not the one that hilserver has put there.
    """
    return _in_cache(index) if cache_root().exists() else None


def _in_cache(index: Indices) -> Path | None:
    folder = folder_of(index)
    if not is_sealed(folder):
        return None
    note_use(folder)
    require_seal(folder)
    return folder / FILE if is_sealed(folder) else None  # not where it has just been removed


def compile_for(index: Indices) -> Path:
    """The same; compiles it first if necessary, in a process for which it waits.

    Raises HilserverError if it can't be compiled.
    """
    import subprocess  # not loaded by the real-time process

    if (found := _in_cache(index)) is not None:
        return found
    return file_made(index, subprocess.run(COMPILE, input=index.tobytes(), capture_output=True).stderr)


def file_made(index: Indices, error: bytes) -> Path:
    """The same after COMPILE has ended with this text as its error. Raises HilserverError if it has made none."""
    if (found := _in_cache(index)) is None:
        reason = error.decode(errors="replace").strip() or "the compiler did not finish."
        raise HilserverError(f"the circuit can't be compiled: {reason}")
    return found


def with_code(packed: PackedCircuit, program: Program, file: Path | None = None) -> PackedCircuit:
    """The circuit with its code, for this process and this program; unchanged if the code has not been compiled."""
    file = file or compiled_file(packed.index)
    if file is None:
        return packed
    index = packed.index.copy()
    index[CODE] = address(index, program, file)
    return replace(packed, index=index)


def address(index: Indices, program: Program, file: Path) -> int:
    """Load the code in a file into this process; its address. Raises HilserverError if it is another circuit's."""
    if file.parent.name != _name(index):
        raise HilserverError(f"{file}: is the code of another circuit, or of another version of hilserver.")
    own = max(kinds_of(index), default=0) >= FIRST_OWN_KIND
    library = _loaded(file, program.fingerprint if own else "")
    if own:
        table = (ctypes.c_uint64 * MAX_OWN_KINDS).in_dll(library, OWN_TABLE)
        np.ctypeslib.as_array(table)[:] = program.table(OWN_TABLE, MAX_OWN_KINDS)
    return ctypes.cast(getattr(library, ENTRY), ctypes.c_void_p).value or 0


@functools.cache
def _loaded(file: Path, program: str) -> ctypes.CDLL:
    """The shared library; a copy of its own for each program, because a library has one table of own kernels."""
    if not program:
        return ctypes.CDLL(str(file))
    memory = os.memfd_create(file.name)  # stays open: the linker knows libraries by their names
    os.write(memory, file.read_bytes())
    return ctypes.CDLL(f"/proc/self/fd/{memory}")


def kinds_of(index: Indices) -> list[int]:
    """The numbers of the kernels that a circuit calls."""
    tables = ((N_CALLS, CALLS), (N_SAMPLED, SAMPLED))
    return [int(index[int(index[first]) + 4 * k]) for count, first in tables for k in range(int(index[count]))]


def folder_of(index: Indices) -> Path:
    """Folder of the code for circuits of this index; it need not exist.

    Raises HilserverError if somebody else may have written into it.
    """
    return cache_folder(_name(index))


def _name(index: Indices) -> str:
    """Name of the folder of a circuit's code: a hash of all on which it depends."""
    meaning = f"{fingerprint()} {level_used()}".encode() + without_code(index).tobytes()
    return f"{PREFIX}{hashlib.sha256(meaning).hexdigest()[:16]}"


def without_code(index: Indices) -> Indices:
    """A copy of the index as it is packed."""
    plain = index.copy()
    plain[CODE] = 0
    return plain


# --- where it pays ----------------------------------------------------------------------------------------------------

PAYS_AFTER = 20.0
"""Seconds of computing with a circuit in one process after which its code is compiled; that takes two to four."""
SWITCH = "HILSERVER_CIRCUIT_CODE"
"""Environment variable: ``off`` uses no such code, for comparisons."""


@dataclass
class CircuitUse:
    """What a process knows of a circuit: its computing time so far; the address of its code, 0 for none.

    ``look_at``: the computing time at which it looks for the code next.
    """

    computed: float = 0.0
    address: int = 0
    look_at: float = 0.0

    def index(self, packed: PackedCircuit) -> Indices:
        """The index with which a program is to run the circuit: with its code, where there is any."""
        if not self.address:
            return packed.index
        index = packed.index.copy()
        index[CODE] = self.address
        return index


_uses: dict[tuple[str, str], CircuitUse] = {}


def use_of(packed: PackedCircuit, program: Program) -> CircuitUse:
    """The use of a circuit by a program that is about to run it. Its computing time is to be added to it."""
    if os.environ.get(SWITCH) == "off":
        return CircuitUse()
    use = _uses.setdefault((_name(packed.index), program.fingerprint), CircuitUse())
    if use.computed >= use.look_at:
        use.look_at = PAYS_AFTER if use.look_at == 0.0 else inf
        use.address = use.address or _found(packed.index, program, compile_it=use.look_at == inf)
    return use


@contextlib.contextmanager
def running(packed: PackedCircuit, program: Program) -> Iterator[Indices]:
    """The index with which a program is to run a circuit in this context: with its code, where that exists or pays."""
    use, begun = use_of(packed, program), time.thread_time()
    try:
        yield use.index(packed)
    finally:
        use.computed += time.thread_time() - begun


def _found(index: Indices, program: Program, compile_it: bool) -> int:
    """The address of a circuit's code; 0 where there is none, or where it can't be had."""
    try:
        file = compile_for(index) if compile_it and can_compile() else compiled_file(index)
        return 0 if file is None else address(index, program, file)
    except (HilserverError, OSError) as error:
        _log.info("The circuit runs without code of its own: %s", error)
        return 0
