"""What is told of files that are no graph, and where torch is missing."""

import json
import os
import pickle
import re
import zipfile
from pathlib import Path

import pytest
from pytorch_cases import FORMATS, load, model_of, saved, torch

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ops import core_ops
from mace_frontend_pytorch import PyTorch
from mace_frontend_pytorch import program as program_module
from mace_frontend_pytorch.archive import EXPORTED, SCRIPT, is_arithmetic, recognize
from mace_frontend_pytorch.program import silence_torch

MODELS = Path(os.environ.get("MACE_MODELS") or Path(__file__).parents[4] / "shared" / "models")
ALONE = "holds weights or a pickled module without the graph that computes with them; export the model where its Python code is"


def archive(file: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(file, "w") as made:
        for name, data in members.items():
            made.writestr(f"model/{name.replace('__', '/').replace('_dot_', '.')}", data)
    return file


def script(folder: Path) -> Path:
    return archive(folder / "model.pt", code____torch___dot_py=b"", constants_dot_pkl=b"", data_dot_pkl=b"")


def exported(folder: Path, program: object = None) -> Path:
    return archive(
        folder / "model.pt2", models__model_dot_json=json.dumps(program or {}).encode(), archive_format=b"pt2"
    )


def fault(file: Path) -> str:
    with pytest.raises(MaceError) as error:
        PyTorch().load((file,), Model("m", (file,), inputs=(Port("x", (1, 2)),)), core_ops())
    return str(error.value)


def test_kinds_are_told_without_torch(tmp_path: Path) -> None:
    assert recognize(script(tmp_path)).kind == SCRIPT
    assert recognize(exported(tmp_path)).kind == EXPORTED


@pytest.mark.parametrize("absent", [("torch",), ("onnxscript",), ("torch", "onnxscript")], ids=",".join)
def test_without_torch_it_says_what_to_install_and_what_to_do_instead(
    absent: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_module, "find_spec", lambda name: None if name in absent else object())
    for file, kind in ((script(tmp_path), SCRIPT), (exported(tmp_path), EXPORTED)):
        text = fault(file)
        are = "is" if len(absent) == 1 else "are"
        assert (
            f"{file.name}: is a {kind}, which needs torch: {' and '.join(absent)} {are} not installed" in text
        )
        assert (
            "pip install 'mace-frontend-pytorch[torch]', or export the model to ONNX yourself: torch.onnx.export("
            in text
        )
        assert PyTorch().reference((file,), Model("m", (file,))) is None


def test_weights_alone_are_refused_with_advice_and_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_module, "find_spec", lambda _: None)
    old = tmp_path / "old.pth"
    old.write_bytes(pickle.dumps({"weight": 1}, protocol=2))
    for file in (old, archive(tmp_path / "new.pth", data_dot_pkl=b"\x80\x02}.", version=b"3")):
        assert f"{file.name}: {ALONE}" in fault(file)


@pytest.mark.parametrize(
    "name", ["ai8x/mnist/ai85-mnist-qat8-q.pth.tar", "ai8x/kws20_v3/ai85-kws20_v3-qat8.pth.tar"]
)
def test_checkpoints_of_others_are_refused_with_advice(name: str) -> None:
    file = MODELS / name
    if not file.is_file():
        pytest.skip(f"{file.name} is not in {MODELS}; set MACE_MODELS")
    assert ALONE in fault(file)


def test_pickles_are_never_run(tmp_path: Path) -> None:
    """Not even where torch itself would: the example inputs of an exported program."""
    t = torch()
    mark = tmp_path / "mark"

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return Path.touch, (mark,)

    trap = tmp_path / "trap.pt"
    t.save(Trap(), trap)
    file = saved(t.nn.ReLU(), {"x": (2, 3)}, tmp_path / "whole.pt2")
    changed = tmp_path / "model.pt2"
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(changed, "w") as made:
        for info in source.infolist():
            made.writestr(
                info.filename, trap.read_bytes() if "sample_inputs" in info.filename else source.read(info)
            )
    text = fault(changed)
    assert text.startswith("model.pt2: is no PyTorch model, or a damaged one")
    assert ALONE in fault(trap)
    assert not mark.exists()


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('x')",
        "().__class__",
        "Symbol('a').func",
        "eval('1')",
        "[1][0]",
        "(lambda: 1)()",
        "f'{1}'",
        "x" * 20000,
        "1 +",
    ],
)
def test_dimensions_that_are_code_are_refused(text: str, tmp_path: Path) -> None:
    assert not is_arithmetic(text)
    assert "is no arithmetic" in fault(exported(tmp_path, {"graph": [{"expr_str": text}]}))


@pytest.mark.parametrize(
    "text",
    [
        "s77",
        "2*s0 + 1",
        "Max(1, s0//2)",
        "Mul(Integer(6), Symbol('s16', positive=True, integer=True))",
        "Eq(s0, 3)",
    ],
)
def test_dimensions_that_are_arithmetic_are_not(text: str) -> None:
    assert is_arithmetic(text)


def test_programs_compiled_for_a_machine_are_refused(tmp_path: Path) -> None:
    file = archive(tmp_path / "model.pt2", data__aotinductor__model__x_dot_so=b"", archive_format=b"pt2")
    assert (
        "holds a program that torch has compiled for one machine; save the exported program itself"
        in fault(file)
    )


def test_modules_that_take_more_than_tensors_are_refused(tmp_path: Path) -> None:
    t = torch()

    class Scaled(t.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x, factor: float):  # type: ignore[no-untyped-def]
            return x * factor

    file = tmp_path / "model.pt"
    with silence_torch():
        t.jit.save(t.jit.script(Scaled()), str(file))
    assert (
        "its forward() takes 'factor', which is no tensor; trace a module whose forward() takes tensors alone"
        in fault(file)
    )


@pytest.mark.parametrize("ending", [ending for ending in FORMATS if ending != ".pt2"])
def test_states_of_torchscript_are_refused(ending: str, tmp_path: Path) -> None:
    """They would be constants in ONNX, and every run would begin anew."""
    t = torch()

    class Totals(t.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("offset", t.ones(1, 3))
            self.register_buffer("total", t.zeros(1, 3))

        def forward(self, x):  # type: ignore[no-untyped-def]
            self.total.add_(x)
            return self.total * 2 + self.offset

    shapes = {"x": (1, 3)}
    file = saved(Totals(), shapes, tmp_path / f"model{ending}")
    with pytest.raises(MaceError, match=r"changes its buffers 'total' when it runs, .* by torch.export.save"):
        load(model_of(file, shapes))


@pytest.mark.parametrize(
    ("name", "ending", "argument"),
    [
        ("pool", ".pt2", "divisor_override=5 of aten::avg_pool2d"),
        ("pool", ".traced.pt", "divisor_override=5 of aten::avg_pool2d"),
        ("softplus", ".scripted.pt", "threshold=2"),
        ("distance", ".traced.pt", "p=1.0 of aten::cdist"),
    ],
)
def test_what_torch_exports_as_something_else_is_refused(
    name: str, ending: str, argument: str, tmp_path: Path
) -> None:
    t = torch()

    class Distance(t.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x):  # type: ignore[no-untyped-def]
            return t.cdist(x[0, 0], x[0, 0] * 2, p=1.0)

    modules = {
        "pool": t.nn.AvgPool2d(2, divisor_override=5),
        "softplus": t.nn.Softplus(3, 2),
        "distance": Distance(),
    }
    shapes = {"input": (1, 2, 4, 4)}
    file = saved(modules[name], shapes, tmp_path / f"model{ending}")
    expected = f"model{ending}: torch's exporter to ONNX leaves out {argument}"
    with pytest.raises(MaceError, match=re.escape(expected)):
        load(model_of(file, shapes if name != "distance" else {"x": (1, 2, 4, 4)}))


def test_what_torch_cannot_export_is_told(tmp_path: Path) -> None:
    t = torch()

    class Sorted(t.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x):  # type: ignore[no-untyped-def]
            return t.linalg.svdvals(x)

    shapes = {"x": (2, 2)}
    file = saved(Sorted(), shapes, tmp_path / "model.traced.pt")
    with pytest.raises(
        MaceError,
        match=r"model.traced.pt: torch cannot export it to ONNX: .*; export it yourself and give the ONNX file",
    ):
        load(model_of(file, shapes))


def test_wrong_files_are_told(tmp_path: Path) -> None:
    absent = tmp_path / "absent.pt"
    assert "absent.pt: cannot be read: No such file" in fault(absent)
    two = Model("m", (absent, absent))
    with pytest.raises(MaceError, match="a PyTorch model is one file, 2 are named"):
        PyTorch().load(two.files, two, core_ops())
    other = tmp_path / "other.pt"
    with zipfile.ZipFile(other, "w") as made:
        made.writestr("config.json", "{}")
    assert "other.pt: is no PyTorch model, or a damaged one: an archive of something else" in fault(other)
