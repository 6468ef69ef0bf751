"""Would variants of a circuit side by side in vector registers pay? ``python tests/benchmarks/lanes.py``

First, what a processor could do at best: the verification circuit as hand-written C, a step of one variant in scalar
form and of 4 (AVX2) or 8 (AVX-512) variants at once, with and without a vectorised tanh. Then, what LLVM makes of the
engine's own kernels: the call of each in a loop over the variants, compared with the same loop that is not vectorised.
There, state and sums lie side by side (structure of arrays), because the places in the index are multiplied by the
number of variants; parameters are those of one circuit for all, or each variant has its own array of them.

Prints times of the processor, and whether the bits are the same. Needs g++, glibc's libmvec, and LLVM (extra
``compiled-circuits``). The decision is docs/decisions/0058-no-lanes.md.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
from step_against_c import CIRCUIT, write_parameters

from hilserver.circuit import engine as e
from hilserver.circuit.dispatch import ARRAYS
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.compiler.loading import circuit_bitcode
from hilserver.compiler.machine_code import link
from hilserver.compiler.specialising import KERNEL
from hilserver.numerics.arrays import Floats, Indices

HERE = Path(__file__).parent
VARIANTS, STEPS, H = 16, 30_000, 3e-4
FORMS = {
    "scalar": (1, ()),
    "4 lanes": (4, ("-mno-avx512f",)),
    "8 lanes": (8, ()),
    "4 lanes, libmvec": (4, ("-mno-avx512f", "-DVECTOR_TANH=_ZGVdN4v_tanh", "-lmvec")),
    "8 lanes, libmvec": (8, ("-DVECTOR_TANH=_ZGVeN8v_tanh", "-lmvec")),
}
OPTIONS = ("-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi")
CALLS, REPEATS = 20_000, 5
OBSERVABLES = 256
"""Cells of the observables of a variant."""


def main() -> None:
    """Both measurements."""
    with tempfile.TemporaryDirectory() as folder:
        hand_written(Path(folder))
        for name in ("verification", "lift"):
            circuit = read_circuit(tomllib.loads((CIRCUIT.parent / f"{name}.toml").read_text()), standard_library())
            for width in (4, 8):
                for apart in (False, True):
                    one, all_, same = kernels(pack(circuit, standard_library()), width, apart, Path(folder))
                    own = "parameters of each variant" if apart else "one set of parameters"
                    text = f"kernels of {name}, {width} lanes, {own}: {one * 1e9:.1f} and {all_ * 1e9:.1f} ns"
                    print(f"{text}, {one / all_:.2f} times; same bits: {same}")


def hand_written(folder: Path) -> None:
    """The C programs."""
    write_parameters(read_circuit(tomllib.loads(CIRCUIT.read_text()), standard_library()), folder)
    first: list[str] = []
    for name, (width, more) in FORMS.items():
        binary = folder / f"lanes-{name.replace(' ', '-')}"
        command: list[str | Path] = [
            "g++",
            *OPTIONS,
            f"-DW={width}",
            f"-I{folder}",
            HERE / "lanes.cpp",
            *more,
            "-o",
            binary,
            "-lm",
        ]
        subprocess.run(command, check=True)
        runs = [
            subprocess.run([binary, str(VARIANTS), str(STEPS), str(H)], capture_output=True, text=True, check=True)
            for _ in range(REPEATS)
        ]
        found = min((run.stdout.split() for run in runs), key=lambda words: float(words[0]))
        first = first or found
        ratio = float(first[0]) / float(found[0])
        text = f"C, {name}: {float(found[0]) * 1e9:.0f} ns per step of a variant, {ratio:.2f} times"
        states, scalar = (np.array(words[1:], dtype=float) for words in (found, first))
        deviation = np.abs((states - scalar) / np.where(scalar == 0.0, 1.0, scalar)).max()
        print(f"{text}; largest relative difference of a final state: {deviation:.1e}")


def kernels(packed: PackedCircuit, width: int, apart: bool, folder: Path) -> tuple[float, float, bool]:
    """Times of one call of each kernel, s per variant, in scalar form and side by side; whether the bits are the same.

    ``apart``: each variant has its own parameters.
    """
    calls = calls_of(packed.index)
    index = packed.index.copy()
    for kind, first, *_ in calls:
        index[first : first + slots(kind)] *= width
    lines = "\n".join(_text(index, calls, width, len(packed.value) if apart else 0))
    library = ctypes.CDLL(str(_compiled(lines, width, folder)))
    once, some, same = 0.0, 0.0, True
    start = np.zeros(len(packed.names))
    first = int(packed.index[e.INITIAL])
    start[: len(packed.values)] = packed.value[first : first + len(packed.values)]
    z = np.repeat(start, width) * (1.0 + 0.01 * np.random.default_rng(1).random(len(start) * width))
    val = np.tile(packed.value, width)
    for number in range(len(calls)):
        one, found = _timed(library, f"scalar_{number}", val, z, width * packed.work_size)
        side, other = _timed(library, f"lanes_{number}", val, z, width * packed.work_size)
        once, some, same = once + one / width, some + side / width, same and found == other
    return once, some, same


def calls_of(index: Indices) -> list[list[int]]:
    """The kernel calls of a circuit: number of the kernel, places in index, parameters and observables."""
    first = int(index[e.CALLS])
    found: list[list[int]] = index[first : first + 4 * int(index[e.N_CALLS])].reshape(-1, 4).tolist()
    return found


def slots(kind: int) -> int:
    """Cells of the index that belong to a call of this kernel."""
    (contract,) = (each for each in standard_library().built_in if each.kind == kind)
    arguments = sum(not term.from_parameters for term in contract.arguments)
    return arguments + sum(term.role.name != "OBSERVABLE" for term in contract.results)


def _timed(library: ctypes.CDLL, name: str, val: Floats, z: Floats, sums: int) -> tuple[float, bytes]:
    """s of one call for all variants, and what a call has written."""
    function = getattr(library, name)
    function.argtypes = [*[ctypes.c_void_p] * 4, ctypes.c_int64]
    best, written = np.inf, b""
    for count in (*[CALLS] * REPEATS, 1):
        given = (val, z.copy(), np.zeros(16 * OBSERVABLES), np.full(sums, 1e-12))
        begun = time.thread_time()
        function(*(array.ctypes.data for array in given), count)
        best = min(best, (time.thread_time() - begun) / count) if count > 1 else best
        written = b"".join(array.tobytes() for array in given[1:])
    return best, written


def _text(index: Indices, calls: Sequence[Sequence[int]], width: int, stride: int) -> Iterator[str]:
    """Intermediate code: for each call, functions that repeat the loop over the variants, in both forms."""
    arrays = ", ".join(f"ptr noalias %{name}" for name in ARRAYS[1:])
    cells = ", ".join(f"i64 {int(cell)}" for cell in index)
    yield f"@circuit_index = internal constant [{len(index)} x i64] [{cells}], align 64"
    for kind in sorted({kind for kind, *_ in calls}):
        yield f"declare i32 @{KERNEL}{kind}(ptr, ptr, ptr, ptr, ptr, i64, i64, i64)"
    steps = {"val": stride, "z": 1, "y": OBSERVABLES, "d": 1}
    places = "\n".join(
        f"  %{name}.k = mul i64 %l, {step}\n  %{name}.l = getelementptr double, ptr %{name}, i64 %{name}.k"
        for name, step in steps.items()
    )
    given = ", ".join(f"ptr %{name}.l" for name in ARRAYS[1:])
    for form, hint in (("lanes", 0), ("scalar", 1)):
        for number, (kind, *of) in enumerate(calls):
            yield f"""
define void @{form}_{number}({arrays}, i64 %n) {{
entry:
  br label %outer
outer:
  %i = phi i64 [0, %entry], [%i.next, %after]
  call void asm sideeffect "", "~{{memory}}"()
  br label %loop
loop:
  %l = phi i64 [0, %outer], [%l.next, %loop]
{places}
  %status = call i32 @{KERNEL}{kind}(ptr @circuit_index, {given}, {", ".join(f"i64 {n}" for n in of)})
  %l.next = add i64 %l, 1
  %l.more = icmp ult i64 %l.next, {width}
  br i1 %l.more, label %loop, label %after, !llvm.loop !{hint}
after:
  %i.next = add i64 %i, 1
  %i.more = icmp ult i64 %i.next, %n
  br i1 %i.more, label %outer, label %end, !llvm.loop !5
end:
  ret void
}}"""
    yield f"""
!0 = distinct !{{!0, !2, !3, !4}}
!1 = distinct !{{!1, !6, !4}}
!2 = !{{!"llvm.loop.vectorize.enable", i1 true}}
!3 = !{{!"llvm.loop.vectorize.width", i32 {width}}}
!4 = !{{!"llvm.loop.unroll.disable"}}
!5 = distinct !{{!5, !6}}
!6 = !{{!"llvm.loop.vectorize.enable", i1 false}}"""


def _compiled(text: str, width: int, folder: Path) -> Path:
    """The code in a shared library, compiled as the engine's, for AVX2 or AVX-512."""
    module = llvm.parse_bitcode(circuit_bitcode().read_bytes())
    module.link_in(llvm.parse_assembly(text))
    for item in (*module.functions, *module.global_variables):
        if not item.is_declaration:
            item.linkage = "external" if item.name.startswith(("lanes_", "scalar_")) else "internal"
    for function in module.functions:
        if not function.is_declaration and (function.name.startswith(KERNEL) or "call_" in function.name):
            function.add_function_attribute("alwaysinline")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    level, wide = ("x86-64-v4", "-prefer-256-bit") if width == 8 else ("x86-64-v3", "")
    machine = target.create_target_machine(cpu=level, features=wide, opt=3, reloc="pic", codemodel="default")
    module.data_layout = str(machine.target_data)
    for speed in (0, 3):
        options = llvm.create_pipeline_tuning_options(speed_level=speed)
        options.loop_vectorization, options.slp_vectorization = speed == 3, False
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".o", delete=False) as file:
        file.write(machine.emit_object(module))
    found = Path(file.name).with_suffix(".so")
    link([Path(file.name)], found)
    return found


if __name__ == "__main__":
    main()
