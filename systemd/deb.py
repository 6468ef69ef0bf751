"""Makes a Debian package of an installed tree: ``python deb.py ROOT FOLDER``, after ``make install DESTDIR=ROOT``.

Everything that is not from the tree is in debian/.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from email.utils import formatdate
from pathlib import Path

HERE = Path(__file__).parent
MAINTAINER = f"{os.environ.get('DEBFULLNAME', 'hilserver')} <{os.environ.get('DEBEMAIL', 'hilserver@example.org')}>"
"""Whom the package names: Debian's variables for this, of whoever builds it."""
NEEDLESS = ("LICENSE",)
"""Files of the documentation that Debian has elsewhere."""


def version() -> str:
    """The version, as Debian orders it: ``0.1.0.dev3`` comes before ``0.1.0``."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    return re.sub(r"\.?(dev|a|b|rc)(\d+)", r"~\1\2", project["version"])


def architecture() -> str:
    """Debian's name of this computer's architecture."""
    return subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()


def required_python(root: Path) -> str:
    """The dependency on the version of Python for which the libraries are."""
    (folder,) = (root / "usr/lib/hilserver/lib").glob("python3.*")
    minor = int(folder.name.partition(".")[2])
    return f"python3 (>= 3.{minor}), python3 (<< 3.{minor + 1})"


def tidy(root: Path) -> None:
    """Remove bytecode and what Debian has elsewhere; set the modes of all files."""
    for cache in sorted(root.rglob("__pycache__")):
        shutil.rmtree(cache)
    for name in NEEDLESS:
        (root / "usr/share/doc/hilserver" / name).unlink(missing_ok=True)
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():
            runs = path.is_dir() or (path.stat().st_mode & 0o100 and not re.search(r"\.so(\.|$)", path.name))
            path.chmod(0o755 if runs else 0o644)


def add_texts(root: Path, of: str) -> None:
    """Copyright, changelog and reasons for lintian."""
    documents = root / "usr/share/doc/hilserver"
    shutil.copy(HERE / "debian/copyright", documents / "copyright")
    entry = f"hilserver ({of}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- {MAINTAINER}  {formatdate()}\n"
    (documents / "changelog.gz").write_bytes(gzip.compress(entry.encode(), mtime=0))
    overrides = root / "usr/share/lintian/overrides"
    overrides.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "debian/lintian-overrides", overrides / "hilserver")


def add_control(root: Path, of: str) -> None:
    """The folder DEBIAN: control, checksums and the scripts of the package."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    folder = root / "DEBIAN"
    folder.mkdir()
    values = {
        "VERSION": of,
        "ARCHITECTURE": architecture(),
        "SIZE": str(sum(1 + path.stat().st_size // 1024 for path in files)),
        "PYTHON": required_python(root),
        "MAINTAINER": MAINTAINER,
    }
    text = (HERE / "debian/control").read_text()
    (folder / "control").write_text(re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], text))
    sums = (f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n" for path in files)
    (folder / "md5sums").write_text("".join(sums))
    for name in ("postinst", "prerm", "postrm"):
        shutil.copy(HERE / "debian" / name, folder / name)
        (folder / name).chmod(0o755)


def build(root: Path, folder: Path) -> Path:
    """Make the package; returns its file."""
    of = version()
    tidy(root)
    add_texts(root, of)
    tidy(root)
    add_control(root, of)
    folder.mkdir(exist_ok=True)
    file = folder / f"hilserver_{of}_{architecture()}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", str(root), str(file)], check=True)
    return file


if __name__ == "__main__":
    print(build(Path(sys.argv[1]), Path(sys.argv[2])))
