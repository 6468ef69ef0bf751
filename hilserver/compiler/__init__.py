"""The compiled program: built once as a shared library, found and loaded without a compiler.

`compiled_program` gives the program for a component library. It loads Numba only for components of the user.
"""

from __future__ import annotations

from hilserver.compiler.programs import check, compiled_program, is_compiled, program_for, standard_program

__all__ = ["check", "compiled_program", "is_compiled", "program_for", "standard_program"]
