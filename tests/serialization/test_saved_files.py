"""Files: written whole or not at all, looked at before they are read, and refused with their path."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from by_hand import F32, graph, node
from strategies import OwnOperator
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.serialization import dumps, load, save
from tinychain.autodiff.serialization.atomic import atomic_writer

GRAPH = graph(node(OwnOperator(), text="é\ud800"), inputs=[("v0", F32)], outputs=["v1"])
OTHER = graph(inputs=[("v0", None)], outputs=["v0"])


def refusal(function: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(AutodiffError) as caught:
        function(*arguments, **options)
    assert caught.value.category == "invalid_artifact_file"
    return caught.value.message


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_file_holds_the_bytes_of_dumps(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    save(GRAPH, path)
    assert path.read_bytes() == dumps(GRAPH)
    assert load(path, operators=[OwnOperator]) == load(str(path), operators=[OwnOperator]) == GRAPH
    assert names(tmp_path) == ["graph.json"]


def test_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    save(GRAPH, path)
    path.chmod(0o640)
    save(OTHER, path)
    assert load(path) == OTHER
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_symbolic_link_stays_one(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    save(OTHER, link)
    assert link.is_symlink()
    assert load(target) == OTHER


def test_artifact_that_cannot_be_saved_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    save(OTHER, path)
    with pytest.raises(AutodiffError, match="cannot be saved"):
        save(graph(outputs=["gone"]), path)
    assert load(path) == OTHER


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_writer_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write() -> None:
        with atomic_writer(path) as file:
            file.write(b"new")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with atomic_writer(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def test_killed_writer_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    code = (
        "import os, signal, sys\n"
        "from tinychain.autodiff.serialization.atomic import atomic_writer\n"
        "with atomic_writer(sys.argv[1]) as file:\n"
        "    file.write(b'new' * 100_000)\n"
        "    file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    assert path.read_bytes() == b"old"


# ----------------------------------------------------------------------------------------------------------- refusals


def test_missing_file_folder_and_long_name_are_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing.json"
    assert refusal(load, missing).startswith(
        f"{missing!r}: expected a file that can be read, got the error No such file"
    )
    assert "at $: expected a regular file, got a directory or a device" in refusal(load, tmp_path)
    assert "Not a directory" in refusal(load, Path(__file__) / "below")
    assert "File name too long" in refusal(load, tmp_path / ("x" * 300))
    assert "embedded null byte" in refusal(load, "a\0b")


@pytest.mark.parametrize("device", ["/dev/zero", "fifo"])
def test_device_that_never_ends_is_not_read(tmp_path: Path, device: str) -> None:
    path = tmp_path / device
    if not path.exists():
        os.mkfifo(path)
    assert "expected a regular file" in refusal(load, path)


def test_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "graph.json", Path(__file__) / "below"):
        assert refusal(save, OTHER, path).startswith(f"{path!r}: expected a file that can be written, got the error")
    assert "Is a directory" in refusal(save, OTHER, tmp_path)
    assert "embedded null byte" in refusal(save, OTHER, "a\0b")
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["fifo", "socket", "directory", "link to a fifo", "link to itself"])
def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "here"
    with socket.socket(socket.AF_UNIX) as server:
        match kind:
            case "fifo":
                os.mkfifo(path)
            case "socket":
                server.bind(str(path))
            case "directory":
                path.mkdir()
            case "link to a fifo":
                os.mkfifo(tmp_path / "fifo")
                path.symlink_to(tmp_path / "fifo")
            case _:
                path.symlink_to(path)
    before = {name: os.lstat(tmp_path / name).st_ino for name in names(tmp_path)}
    with pytest.raises(OSError, match=r"Not a regular file|Is a directory"), atomic_writer(path):
        pytest.fail("it was opened")
    assert refusal(save, OTHER, path).startswith(f"{path!r}: expected a file that can be written, got the error")
    assert {name: os.lstat(tmp_path / name).st_ino for name in names(tmp_path)} == before


def test_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    save(OTHER, path)
    path.chmod(0)
    code = (
        "import os, sys\n"
        "from tinychain.autodiff.serialization import load, save\n"
        "from tinychain.autodiff import AutodiffError, TensorGraph\n"
        "if os.geteuid() == 0:\n"
        "    os.setgroups([])\n"
        "    os.setuid(65534)\n"  # root may read everything
        "try:\n"
        "    load(sys.argv[1])\n"
        "except AutodiffError as error:\n"
        "    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("invalid_artifact_file: ")
    assert "got the error Permission denied; check the path, its rights and space" in result.stdout


def test_file_over_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole that takes no space
    message = refusal(load, path)
    assert f"at $: expected at most {1 << 28} bytes, got {1 << 40}; raise max_bytes" in message


def test_fault_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_bytes(dumps(OTHER).replace(b"v0", b"v1", 1))
    assert refusal(load, path).startswith(f"{path!r}: at $.sha256: expected")


@pytest.mark.parametrize("path", [None, 3, b"graph.json", ["graph.json"]])
def test_path_of_another_type_is_a_type_error(path: Any) -> None:
    with pytest.raises(TypeError, match=r"path must be a str or an os\.PathLike"):
        load(path)
    with pytest.raises(TypeError, match=r"path must be a str or an os\.PathLike"):
        save(OTHER, path)
