"""Writes a circuit as an FMU."""

from __future__ import annotations

import hashlib
import platform
import re
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from hilserver.circuit.library import Library, circuit_library
from hilserver.circuit.model import Circuit
from hilserver.circuit.pack import pack
from hilserver.compiler.loading import fmi_file
from hilserver.errors import HilserverError
from hilserver.fmu.datasheet import parameters
from hilserver.fmu.description import FMI_2, VERSIONS, Model, model_description
from hilserver.fmu.packed import circuit_bytes
from hilserver.fmu.variables import Causality, Variable, derivatives, quantities
from hilserver.simulation.circuit_run import DEFAULT_DURATION, TICK, RunSettings, read_circuit_file

LICENCE = """The shared library in this FMU is a part of hilserver, which is licensed under the Apache License, Version
2.0: https://www.apache.org/licenses/LICENSE-2.0
"""


@dataclass(frozen=True)
class WrittenFmu:
    """What was written: the file, the version of FMI, and the variables."""

    file: Path
    version: str
    variables: tuple[Variable, ...]

    def number(self, *kinds: Causality) -> int:
        """The number of variables of these kinds."""
        return sum(variable.kind in kinds for variable in self.variables)


def export_circuit(file: Path, out: Path, fmi: str = FMI_2, tick: float = TICK) -> WrittenFmu:
    """Write a circuit file as an FMU for co-simulation and, without mechanisms, for model exchange.

    ``fmi``: version of the standard, 2.0 or 3.0; ``tick``: s, divided into the circuit's ``substeps``. Raises
    ConfigurationError with all problems of the circuit, HilserverError where it can't be exported.
    """
    if out.suffix != ".fmu":
        raise HilserverError(f"{out}: the name of an FMU ends with .fmu.")
    if fmi not in VERSIONS:
        raise HilserverError(f"FMI {fmi} can't be written: choose {' or '.join(VERSIONS)}.")
    RunSettings(tick=tick)  # checks it
    library = circuit_library(file)
    circuit = read_circuit_file(file, library)
    _refuse_own(circuit, library, file)
    packed = pack(circuit, library, file=str(file))
    shown = quantities(circuit, packed)
    rates = [] if circuit.mechanisms else derivatives(packed, shown)
    variables = (*shown, *parameters(circuit, packed, library), *rates)
    nameless = circuit_bytes(packed, tick, variables, "")
    binary = fmi_file().read_bytes()
    token = hashlib.sha256(nameless + binary).hexdigest()[:32]
    model = Model(
        name=file.stem,
        identifier=_identifier(file.stem),
        token=token,
        description=circuit.description,
        tool=f"hilserver {version('hilserver')}",
        tick=tick,
        duration=DEFAULT_DURATION,
        variables=variables,
    )
    contents = {
        "modelDescription.xml": model_description(model, fmi),
        f"binaries/{_platform(fmi)}/{model.identifier}.so": binary,
        "resources/circuit.bin": circuit_bytes(packed, tick, variables, token),
        "documentation/licenses/license.txt": LICENCE.encode(),
    }
    _write(out, contents)
    return WrittenFmu(out, fmi, variables)


def _refuse_own(circuit: Circuit, library: Library, file: Path) -> None:
    """Raises HilserverError for components of the user, whose kernels are not part of the prebuilt library."""
    for placed in circuit.placed:
        if not all(contract.is_built_in for contract in library.contracts_of(type(placed.component))):
            text = f"{type(placed.component).type_name} is a component of your own, which an FMU can't contain yet"
            raise HilserverError(f"{file}: components.{placed.name}: {text}.")


def _identifier(name: str) -> str:
    """A name of a file as a name in C."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{made}" if made[:1].isdigit() else made


def _platform(fmi: str) -> str:
    """The folder of this computer's binaries."""
    machine = platform.machine()
    if fmi == FMI_2 and machine == "x86_64":
        return "linux64"
    return f"{machine}-linux"


def _write(out: Path, contents: dict[str, bytes]) -> None:
    """A ZIP file with the same bytes for the same contents."""
    part = out.with_name(f"{out.name}.part")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in contents.items():
                entry = zipfile.ZipInfo(name)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
                archive.writestr(entry, data)
        part.replace(out)
    except OSError as error:
        raise HilserverError(f"{out}: can't be written: {error.strerror or error}.") from error
