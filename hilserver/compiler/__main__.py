"""Builds the program: ``python -m hilserver.compiler [FOLDER]``.

Without a folder it is built into the user's cache, unless there is one for the present sources already.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hilserver.compiler.loading import found_file
from hilserver.errors import HilserverError

if __name__ == "__main__":
    try:
        if len(sys.argv) > 1 or found_file() is None:
            from hilserver.compiler.storing import build_once, fill  # loads Numba

            if len(sys.argv) > 1:
                fill(Path(sys.argv[1]))
            else:
                build_once()
    except HilserverError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("Stopped.")
