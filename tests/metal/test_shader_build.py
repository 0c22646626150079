"""The build of the metallib, with a script in the place of xcrun. Apple's compiler itself is not tested."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
CMAKE = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")

PROJECT = f"""
cmake_minimum_required(VERSION 3.24)
project(shaders LANGUAGES NONE)
set(shaders ${{CMAKE_CURRENT_SOURCE_DIR}}/shaders)
set(metal_shaders ${{shaders}}/norm/one.metal ${{shaders}}/two.metal)
include({ROOT}/native/metal_shaders.cmake)
"""

XCRUN = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in *--version) echo "$ANSWER" >&2; exit "$STATUS";; esac
for last; do :; done
case "$*" in *-MF*) echo "$last:" > "$last.d";; esac
touch "$last"
"""

if CMAKE is None:
    pytest.skip("cmake is missing", allow_module_level=True)


class Build:
    """A project with two shaders, and the calls of xcrun."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("norm/one", "two"):
            path = folder / "shaders" / f"{name}.metal"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (folder / "CMakeLists.txt").write_text(PROJECT)
        (folder / "bin").mkdir()
        (folder / "bin" / "xcrun").write_text(XCRUN)
        (folder / "bin" / "xcrun").chmod(0o755)

    def run(self, *options: str, status: int = 0, answer: str = "", ci: str = "") -> str:
        """Configure and build; return what CMake said of the configuration."""
        environment = os.environ | {
            "PATH": f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CALLS": str(self.folder / "calls"),
            "STATUS": str(status),
            "ANSWER": answer,
            "CI": ci,
        }
        said = ""
        for command in (["-G", "Ninja", "-B", "build", *options, "."], ["--build", "build"]):
            done = subprocess.run(
                [str(CMAKE), *command],
                cwd=self.folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=100,
            )
            assert done.returncode == 0, done.stderr
            said = said or done.stderr
        return " ".join(said.split())

    @property
    def compilations(self) -> list[str]:
        return [call for call in (self.folder / "calls").read_text().splitlines() if " -c " in call]

    @property
    def metallib(self) -> Path:
        return self.folder / "build" / "pyturbo.metallib"


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return Build(tmp_path)


def test_shaders_are_compiled_into_a_metallib(build: Build) -> None:
    assert build.run() == ""
    assert build.metallib.exists()
    assert len(build.compilations) == 2
    for call in build.compilations:
        assert call.startswith(
            "-sdk macosx metal -std=metal3.1 -mmacosx-version-min=14.0 -fno-fast-math -Wall "
        )
        assert "-Werror" not in call


def test_warnings_are_errors_where_asked(build: Build) -> None:
    build.run(ci="true")
    assert all("-Werror" in call for call in build.compilations)


def test_the_oldest_system(build: Build) -> None:
    build.run("-DCMAKE_OSX_DEPLOYMENT_TARGET=15.2", "-DPYTURBO_WERROR=ON")
    assert all("-mmacosx-version-min=15.2 " in call and "-Werror" in call for call in build.compilations)
    (build.folder / "calls").unlink()
    shutil.rmtree(build.folder / "build")
    build.run("-DCMAKE_OSX_DEPLOYMENT_TARGET=11.0")
    assert all("-mmacosx-version-min=14.0 " in call for call in build.compilations)


def test_without_a_compiler_there_is_a_warning(build: Build) -> None:
    said = build.run(status=72, answer="error: cannot execute tool 'metal' due to missing Metal Toolchain")
    assert "CMake Warning" in said
    assert "missing Metal Toolchain" in said
    assert "kernels are compiled at run time" in said
    assert build.compilations == []
    assert not build.metallib.exists()


def test_without_xcode_there_is_a_warning(build: Build) -> None:
    (build.folder / "bin" / "xcrun").unlink()
    if shutil.which("xcrun"):
        pytest.skip("this machine has xcrun")
    assert "kernels are compiled at run time" in build.run()
    assert not build.metallib.exists()
