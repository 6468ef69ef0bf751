"""Secrets lie in private files; nothing runs what it is sent."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from mosquitto_lab import NEEDS_MOSQUITTO, Lab

from hilserver.client import where
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.protocol.address import BrokerAddress, LoginError, read_address, read_password
from hilserver.rig.settings import MqttSettings

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

# --- secrets lie in private files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        (0o600, None),
        (0o400, None),
        (0o640, None),
        (0o644, r"others may read it\. Fix it with: chmod 640 "),
        (0o660, "users other than its owner may change it"),
        (0o602, "users other than its owner may change it"),
    ],
)
def test_a_password_is_read_from_a_private_file_only(tmp_path: Path, mode: int, reason: str | None) -> None:
    file = tmp_path / "password"
    file.write_text("secret\nwhatever\n")
    file.chmod(mode)
    if reason is None:
        assert read_password(file) == "secret"
    else:
        with pytest.raises(LoginError, match=reason) as refused:
            read_password(file)
        assert str(file) in str(refused.value)
        assert "secret\n" not in str(refused.value)


def test_an_invalid_password_file_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch(0o600)
    for file, reason in ((empty, "empty"), (tmp_path / "missing", "No such file"), (tmp_path, "is not a file")):
        with pytest.raises(LoginError, match=reason):
            read_password(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_password_in_somebody_elses_file_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:  # where others may look, other than in pytest's
        Path(folder).chmod(0o755)
        _give_away(Path(folder) / "password")


def _give_away(file: Path) -> None:
    file.touch(0o600)
    file.write_text("secret")
    script = (
        "import os, sys; from pathlib import Path; from hilserver.protocol.address import require_private\n"
        "os.seteuid(65534)\n"
        "try: require_private(Path(sys.argv[1]))\n"
        "except Exception as error: print(error)"
    )
    for owner, said in ((1, "belongs to daemon"), (0, "")):
        os.chown(file, owner, 0)
        done = subprocess.run([sys.executable, "-c", script, file], capture_output=True, text=True, check=True)
        assert said in done.stdout
        assert bool(done.stdout) == bool(said)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_certificates_and_keys_are_checked(tmp_path: Path) -> None:
    folder = Lab(tmp_path).folder
    good = {"ca_file": folder / "ca.crt", "cert_file": folder / "broker.crt", "key_file": folder / "broker.key"}
    BrokerAddress.model_validate(good).check()
    locked = folder / "locked.key"
    protect: list[str | Path] = [
        "openssl",
        "pkey",
        "-in",
        folder / "broker.key",
        "-aes256",
        "-passout",
        "pass:x",
        "-out",
        locked,
    ]
    subprocess.run(protect, check=True, capture_output=True)
    (folder / "public.key").write_bytes((folder / "broker.key").read_bytes())
    (folder / "public.key").chmod(0o644)
    for changes, reason in (
        ({"ca_file": folder / "none.crt"}, "none.crt: No such file"),
        ({"ca_file": folder / "anna"}, "anna: contains no usable certificate"),
        ({"key_file": folder / "public.key"}, "others may read it"),
        ({"key_file": folder / "ca.key"}, "contains no usable certificate or key"),
        ({"key_file": locked}, "the key has a passphrase"),
    ):
        with pytest.raises(LoginError, match=reason):
            BrokerAddress.model_validate({**good, **changes}).check()


def test_weaknesses_of_the_network_settings_are_reported() -> None:
    assert list(BrokerAddress().weaknesses()) == []
    assert list(BrokerAddress(host="localhost").weaknesses()) == []
    texts = list(BrokerAddress(host="lab-pc", port=1884).weaknesses())
    assert ["no TLS" in texts[0], "no login" in texts[1]] == [True, True]
    assert all(text.startswith("MQTT broker lab-pc:1884") for text in texts)
    assert list(BrokerAddress(host="lab-pc", user="x", ca_file=Path("ca.crt")).weaknesses()) == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"password_file": "p"}, "password_file needs user"),
        ({"cert_file": "c", "ca_file": "a"}, "cert_file and key_file belong together"),
        ({"cert_file": "c", "key_file": "k"}, "cert_file needs ca_file"),
        ({"embedded": True, "host": "lab-pc"}, "host is for an external broker"),
        ({"accounts": "a"}, "are for embedded = true"),
        ({"embedded": True, "operators": ["anna"]}, "operators need accounts"),
        ({"port": 0}, "port 0"),
        ({"command_lifetime": "0.5 s"}, "greater than or equal to 1"),
        ({"password": "secret"}, "Extra inputs"),
    ],
)
def test_refused_settings(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        MqttSettings.model_validate(settings)


# --- the command line logs in with a file of its user's ---------------------------------------------------------------


def test_a_broker_file_names_address_log_in_and_rig(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(
        'rig = "lab"\nhost = "lab-pc"\nport = 8883\nuser = "anna"\npassword_file = "password"\nca_file = "ca.crt"\n'
    )
    rig, address = read_address(file)
    assert (rig, str(address), address.user) == ("lab", "lab-pc:8883", "anna")
    assert (address.password_file, address.ca_file) == (tmp_path / "password", tmp_path / "ca.crt")
    assert where(None, str(file)) == ("lab", address)
    assert where("lift", str(file)) == ("lift", address)
    file.write_text('host = "lab-pc"\n')
    with pytest.raises(HilserverError, match="which rig"):
        where(None, str(file))
    file.write_text('hots = "lab-pc"\nport = 70000\n')
    with pytest.raises(ConfigurationError) as refused:
        read_address(file)
    assert "hots" in str(refused.value)
    assert "port" in str(refused.value)
    with pytest.raises(HilserverError, match="no such file"):
        where(None, str(tmp_path / "none.toml"))


# --- nothing in it runs what it is sent -------------------------------------------------------------------------------

FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
SHELLS = {"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"}


def dangers(source: str) -> list[str]:
    """What in a Python source could run or unpickle data."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        if any(part in FORBIDDEN_MODULES for name in names for part in name.split(".")):
            found.append(f"line {node.lineno}: imports {names[0]}")  # type: ignore[attr-defined]
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if (isinstance(node.func, ast.Name) and name in FORBIDDEN_CALLS) or name in SHELLS:
                found.append(f"line {node.lineno}: calls {name}")
            for keyword in node.keywords:
                if keyword.arg in ("allow_pickle", "shell") and getattr(keyword.value, "value", None) is not False:
                    found.append(f"line {node.lineno}: {keyword.arg}")
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import multiprocessing.pickle",
        "eval('1')",
        "exec(text)",
        "x = compile(t, 'f', 'exec')",
        "__import__(name)",
        "np.load(f, allow_pickle=True)",
        "subprocess.run(text, shell=True)",
        "os.system(text)",
        "asyncio.create_subprocess_shell(text)",
        "import yaml",
    ],
)
def test_the_search_finds_its_patterns(source: str) -> None:
    assert dangers(source)


def test_nothing_unpickles_or_evaluates_data() -> None:
    files = [*(ROOT / "hilserver").rglob("*.py"), *(ROOT / "drivers").rglob("*.py")]
    assert len(files) > 100
    found = {file.relative_to(ROOT).as_posix(): dangers(file.read_text()) for file in files}
    assert {file: what for file, what in found.items() if what} == {}


@NEEDS_MOSQUITTO
def test_nothing_over_mqtt_names_a_file_outside_of_the_circuits(tmp_path: Path) -> None:
    """A circuit may name CSV files beside the rig's circuit; neither others, nor Python files, come in by a command."""
    from hilserver.circuit.library import standard_library
    from hilserver.circuit.model import read_circuit

    circuits = tmp_path / "circuits"
    circuits.mkdir()
    (tmp_path / "secret.csv").write_text("0,1\n1,2\n")
    for name in ("../secret.csv", str(tmp_path / "secret.csv"), "x/../../secret.csv"):
        source = {"components": {"signal": {"type": "table_signal", "signal": "s", "csv": name}}}
        with pytest.raises(ConfigurationError, match="must be a file in the folder of the circuit file"):
            read_circuit(source, standard_library(), "", circuits)
    with pytest.raises(ConfigurationError, match="library"):
        read_circuit({"components": {}, "library": ["evil.py"]}, standard_library(), "", circuits)
