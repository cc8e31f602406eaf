"""An export is kept by its content: the second command does without torch, and nothing that is damaged or others' is believed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pytorch_cases import arrays, load, model_of, saved, torch

from mace_core.cache import CACHE, cache_folder
from mace_core.deployment import Model
from mace_core.run import disk_cache
from mace_core.run.reference import execute
from mace_frontend_pytorch import PyTorch
from mace_frontend_pytorch.program import _Exported, _Script

SHAPES = {"x": (1, 4)}

SECOND = """
import sys
from pathlib import Path
from mace_core.deployment import Model
from mace_core.ops import core_ops
from mace_frontend_pytorch import PyTorch
file = Path(sys.argv[1])
print(PyTorch().port_names((file,)), sorted(PyTorch().load((file,), Model("case", (file,)), core_ops()).outputs), "torch" in sys.modules)
"""


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """An empty cache of the test; tells how often torch has exported."""
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    count = 0
    for kind in (_Exported, _Script):

        def counted(self: object, *given: object, write: Callable[..., None] = kind.write) -> None:
            nonlocal count
            count += 1
            write(self, *given)

        monkeypatch.setattr(kind, "write", counted)
    return lambda: count


@pytest.fixture
def file(tmp_path: Path) -> Path:
    t = torch()
    t.manual_seed(0)
    return saved(t.nn.Linear(4, 3), SHAPES, tmp_path / "model.pt2")


@pytest.mark.slow
def test_the_second_command_does_without_torch(file: Path, exports: Callable[[], int]) -> None:
    """Another process, as a user's second command is, finds the names and the model without importing torch."""
    graph = load(Model("case", (file,)))
    names = PyTorch().port_names((file,))
    command = [sys.executable, "-c", SECOND, str(file)]
    actual = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert actual.stdout.strip() == f"{names} {sorted(graph.outputs)} False"
    again = load(Model("case", (file,)))
    assert exports() == 1
    inputs = arrays(graph)
    np.testing.assert_array_equal(execute(again, inputs)["output"], execute(graph, inputs)["output"])


@pytest.mark.slow
def test_another_content_name_or_shape_is_exported_anew(tmp_path: Path, exports: Callable[[], int]) -> None:
    t = torch()
    module = t.nn.ReLU()
    file = saved(module, SHAPES, tmp_path / "model.traced.pt")
    for ports in ({"x": (1, 4)}, {"x": (2, 4)}, {"image": (2, 4)}):
        before = exports()
        graph = load(model_of(file, ports))
        load(model_of(file, ports))
        assert [graph.tensors[name].shape for name in graph.inputs] == [*ports.values()]
        assert exports() == before + 1
    saved(t.nn.Tanh(), SHAPES, file)
    graph = load(model_of(file, {"x": (1, 4)}))
    assert exports() == 4
    assert [node.op.name for node in graph.nodes] == ["Tanh"]


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", ["empty", "cut", "bits", "json"])
def test_a_damaged_export_is_exported_anew(file: Path, exports: Callable[[], int], damage: str) -> None:
    graph = load(Model("case", (file,)))
    kept_files = [*cache_folder("exports").iterdir()]
    assert len(kept_files) == 2
    for entry in kept_files:
        data = bytearray(entry.read_bytes())
        data[len(data) // 2] ^= 0xFF
        entry.write_bytes(
            {"empty": b"", "cut": entry.read_bytes()[:-9], "bits": bytes(data), "json": b'[["x"], "1"]'}[
                damage
            ]
        )
    again = load(Model("case", (file,)))
    assert exports() == 2
    inputs = arrays(graph)
    np.testing.assert_array_equal(execute(again, inputs)["output"], execute(graph, inputs)["output"])
    load(Model("case", (file,)))
    assert exports() == 2


@pytest.mark.exhaustive
def test_an_export_that_others_can_write_is_not_believed(file: Path, exports: Callable[[], int]) -> None:
    load(Model("case", (file,)))
    cache_folder("exports").chmod(0o777)
    load(Model("case", (file,)))
    assert exports() == 2
    cache_folder("exports").chmod(0o700)
    for entry in cache_folder("exports").iterdir():
        entry.chmod(0o666)
    load(Model("case", (file,)))
    assert exports() == 3


def test_what_was_used_longest_ago_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    monkeypatch.setattr(disk_cache, "MAX_BYTES", 250)
    for number, key in enumerate(("a", "b")):
        disk_cache.write_cached("things", key, bytes(100))
        os.utime(cache_folder("things") / key, (number, number))
    assert disk_cache.read_cached("things", "a") is not None  # used now, so b is the oldest
    disk_cache.write_cached("things", "c", bytes(100))
    assert sorted(file.name for file in cache_folder("things").iterdir()) == ["a", "c"]
    disk_cache.write_cached("things", "large", bytes(300))
    assert sorted(file.name for file in cache_folder("things").iterdir()) == ["a", "c"]
