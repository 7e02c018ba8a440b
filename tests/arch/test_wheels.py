"""Our wheel beside a wheel that ships its own `tinychain/__init__.py`: both import, whichever came first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from arch.source import ROOT

CLIENT_FILES = {
    "pyproject.toml": """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "pretended-tinychain-client"
version = "1.0"
[tool.hatch.build.targets.wheel]
packages = ["tinychain"]
""",
    "tinychain/__init__.py": '"""A regular package that owns the name."""\n',
    "tinychain/client.py": '"""What the other distribution is for."""\nANSWER = 42\n',
}

# The folder goes first, and the paths that an editable install of ours added go, so that only the wheels are found.
IMPORT = """
import sys
folder, root = sys.argv[1:]
sys.path[:] = [folder] + [path for path in sys.path if not path.startswith(root + "/src")]
"""
IMPORT_OURS = IMPORT + "import tinychain.autodiff as ours; assert ours.__file__.startswith(folder), ours.__file__\n"
IMPORT_BOTH = IMPORT_OURS + "import tinychain.client as theirs; assert theirs.__file__.startswith(folder)\n"


def build(project: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(project)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, prefix: Path) -> Path:
    """Installs one wheel, and nothing else, below `prefix`; returns the folder to import from."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--ignore-installed"]
    subprocess.run([*command, "--prefix", str(prefix), str(wheel)], check=True, capture_output=True, text=True)
    (folder,) = prefix.rglob("site-packages")
    return folder


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, str(folder), str(ROOT)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("client")
    for name, content in CLIENT_FILES.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(content)
    return build(project, tmp_path_factory.mktemp("theirs"))


def test_our_wheel_ships_the_package_its_marker_and_its_license_only(ours: Path) -> None:
    names = ZipFile(ours).namelist()
    dist_info = "tinychain_autodiff-0.1.0.dist-info/"
    assert [name for name in names if not name.startswith(("tinychain/autodiff/", dist_info))] == []
    assert "tinychain/autodiff/py.typed" in names
    assert f"{dist_info}licenses/LICENSE" in names


def test_our_wheel_imports_alone(ours: Path, tmp_path: Path) -> None:
    result = run(IMPORT_OURS, install(ours, tmp_path))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_both_wheels_import_in_either_order_of_installation(
    ours: Path, theirs: Path, tmp_path: Path, first: str
) -> None:
    for wheel in (ours, theirs) if first == "ours" else (theirs, ours):
        folder = install(wheel, tmp_path)
    assert (folder / "tinychain/__init__.py").read_text() == CLIENT_FILES["tinychain/__init__.py"]
    result = run(IMPORT_BOTH, folder)
    assert result.returncode == 0, result.stderr


def test_sees_that_a_wheel_is_missing(theirs: Path, tmp_path: Path) -> None:
    result = run(IMPORT_BOTH, install(theirs, tmp_path))
    assert result.returncode != 0
    assert "No module named 'tinychain.autodiff'" in result.stderr
