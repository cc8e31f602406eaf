"""What a file holds: its tensors, names and constants, and the limits of a damaged one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tflite
from tflite_write import Scales, Step, Value, Written, write

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import MAX_ELEMENTS, DType, Quant, Shape
from mace_core.ops import core_ops
from mace_frontend_tflite import TfLite, source
from mace_frontend_tflite.source import Operator, Subgraph, TensorInfo, TfliteFile

READER = source._Reader


def info(name: str = "", index: int = 0, **fields: object) -> TensorInfo:
    plain = TensorInfo(index, name, (), (), DType.F32, "FLOAT32", 0, None, False, None)
    return replace(plain, **fields)  # type: ignore[arg-type]


def read(folder: Path, *values: Value) -> TfliteFile:
    """A file with these tensors besides x and y."""
    x, y = Value("x", shape=(1,)), Value("y", shape=(1,))
    file = folder / "case.tflite"
    file.write_bytes(write(Written([x, y, *values], [Step("RELU", ["x"], ["y"])], ["x"], ["y"])))
    return source.read(file)


def tensor(folder: Path, value: Value) -> TensorInfo:
    return read(folder, value).subgraphs[0].tensors[2]


@pytest.mark.parametrize(("count", "size", "left"), [(2, 4, 0), (1, 4, 4), (0, 4, 8), (8, 1, 0), (1, 8, 0)])
def test_a_vector_takes_its_bytes_from_the_budget(count: int, size: int, left: int) -> None:
    reader = READER(8)
    reader.take(count, size)
    assert reader.left == left


@pytest.mark.parametrize(("count", "size"), [(3, 4), (9, 1), (-1, 4), (2, 8)])
def test_a_vector_that_is_longer_than_the_rest_of_the_file_is_refused(count: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"a list of {count} elements where 8 bytes are left"):
        READER(8).take(count, size)


def test_tables_numbers_and_texts_take_their_bytes() -> None:
    class Table:
        def ShapeLength(self) -> int:  # noqa: N802  # the schema's names
            return 2

        def ShapeAsNumpy(self) -> np.ndarray:  # noqa: N802
            return np.array([3, 4])

    reader = READER(100)
    assert reader.tables(3, str) == ["0", "1", "2"]
    assert reader.left == 88
    assert reader.numbers(Table(), "Shape") == (3, 4)
    assert reader.left == 80
    assert reader.numbers(Table(), "Shape", 8) == (3, 4)
    assert reader.left == 64
    assert reader.text(b"name") == "name"
    assert reader.left == 60
    assert reader.text(None) == ""
    assert reader.left == 60


@pytest.mark.parametrize(
    ("names", "unique"),
    [
        (["a", "b"], ["a", "b"]),
        (["", ""], ["tensor_0", "tensor_1"]),
        (["a", "a", "a"], ["a", "a.1", "a.2"]),
        (["a", "a", "a.1"], ["a", "a.1.1", "a.1"]),
        (["", "tensor_0"], ["tensor_0.0", "tensor_0"]),
        (["tensor_1", ""], ["tensor_1", "tensor_1.1"]),
        (["a", "a", "a.1", "a.1.1"], ["a", "a.1.1.1", "a.1", "a.1.1"]),
    ],
)
def test_names_become_unique(names: list[str], unique: list[str]) -> None:
    """A name that the file states once stays; those made here give way."""
    tensors = source._name_uniquely([info(name, i) for i, name in enumerate(names)])
    assert [tensor.name for tensor in tensors] == unique


@pytest.mark.parametrize(
    ("shape", "fits"), [((4,), True), ((3,), True), ((2, 2), True), ((5,), False), ((2,), False)]
)
def test_four_bits_are_two_in_a_byte_the_lower_first(shape: Shape, fits: bool) -> None:
    raw = np.array([0x1F, 0x87], np.uint8)
    described = info("w", shape=shape, dtype=None, kind="INT4")
    if not fits:
        with pytest.raises(ValueError, match="constant 'w' is of type INT4, which is not supported"):
            source._unpack_int4(raw, described)
        return
    expected = np.int8([-1, 1, 7, -8])[: np.prod(shape)].reshape(shape)
    np.testing.assert_array_equal(source._unpack_int4(raw, described), expected)


def test_other_types_without_a_type_of_the_ir_are_refused() -> None:
    with pytest.raises(ValueError, match="constant 'w' is of type STRING"):
        source._unpack_int4(np.zeros(2, np.uint8), info("w", shape=(4,), dtype=None, kind="STRING"))


@pytest.mark.parametrize(
    ("shape", "fits"),
    [
        ((1,) * 16, True),
        ((1,) * 17, False),
        ((2, 0, 3), True),
        ((2, -1), False),
        ((MAX_ELEMENTS // 4, 4), True),
        ((MAX_ELEMENTS // 4, 5), False),
        ((MAX_ELEMENTS // 4, 4, 0), True),
        ((MAX_ELEMENTS // 4, 8, 0), False),
    ],
)
def test_shapes(shape: Shape, fits: bool, tmp_path: Path) -> None:
    if fits:
        assert tensor(tmp_path, Value("w", shape=shape)).shape == shape
        return
    with pytest.raises(MaceError, match="tensor 2 has a shape of") as error:
        tensor(tmp_path, Value("w", shape=shape))
    assert "; convert or download it again" in str(error.value)


@pytest.mark.parametrize(
    ("signature", "kept"), [((-1, 3), (-1, 3)), ((2, 3), ()), ((-1, 2, 3), ()), ((-1,), ()), ((), ())]
)
def test_a_signature_counts_where_it_leaves_an_axis_open(
    signature: Shape, kept: Shape, tmp_path: Path
) -> None:
    assert tensor(tmp_path, Value("w", shape=(2, 3), signature=signature)).signature == kept


@pytest.mark.parametrize(
    ("scales", "quant"),
    [
        (None, None),
        (Scales((), ()), None),
        (Scales((0.5,), ()), Quant((0.5,), (0,), None)),
        (Scales((0.5,), (3,)), Quant((0.5,), (3,), None)),
        (Scales((0.5, 0.25), (3,), 0), Quant((0.5, 0.25), (3, 3), 0)),
        (Scales((0.5, 0.25, 1), (1, 2, 3), 1), Quant((0.5, 0.25, 1), (1, 2, 3), 1)),
        (Scales((0.5,), (1, 2, 3), 1), Quant((0.5,) * 3, (1, 2, 3), 1)),
        (Scales((0.5,), (3,), 7), Quant((0.5,), (3,), None)),
        (Scales((0.0,), (3,)), None),
        (Scales((np.inf,), (3,)), None),
        (Scales((0.5, 0.0), (3,), 0), None),
    ],
)
def test_scales(scales: Scales | None, quant: Quant | None, tmp_path: Path) -> None:
    assert tensor(tmp_path, Value("w", DType.I8, (2, 3), scales=scales)).quant == quant


def test_scales_take_their_bytes_from_the_budget(tmp_path: Path) -> None:
    file = tmp_path / "case.tflite"
    value = Value("w", DType.I8, (2, 3), scales=Scales((0.5, 0.25, 1), (1, 2, 3), 1))
    file.write_bytes(write(Written([value], [], [], [])))
    table = tflite.Model.GetRootAsModel(file.read_bytes(), 0).Subgraphs(0).Tensors(0).Quantization()
    reader = READER(1000)
    reader.quant(table, (2, 3), DType.I8)
    assert reader.left == 1000 - 3 * 4 - 3 * 8


def test_producers_leave_out_absent_outputs_and_the_last_counts() -> None:
    def operator(index: int, *outputs: int) -> Operator:
        return Operator(index, "RELU", (), outputs, (), None)

    operators = (operator(0, -1, 3), operator(1, 4, 0), operator(2, 3))
    producers = Subgraph(0, (), (), (), operators).producers
    assert {tensor: found.index for tensor, found in producers.items()} == {3: 2, 4: 1, 0: 1}


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        (Scales((0.5, 0.25), (3,), 1), "2 scales along axis 1 of a shape of"),
        (Scales((0.5, 0.25), (3,), 2), "2 scales along axis 2 of a shape of"),
        (Scales((0.5, 0.25), (3,), -1), "2 scales along axis -1 of a shape of"),
        (Scales((0.5, 0.25), (1, 2, 3), 1), "2 scales and 3 zero points"),
    ],
)
def test_scales_that_fit_no_axis_are_refused(scales: Scales, message: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=message):
        tensor(tmp_path, Value("w", DType.I8, (2, 3), scales=scales))


@pytest.mark.parametrize(
    ("dtype", "has_quant"),
    [(DType.I8, True), (DType.U8, True), (DType.I64, True), (DType.F32, False), (DType.BOOL, False)],
)
def test_scales_left_over_from_training_mean_nothing(dtype: DType, has_quant: bool, tmp_path: Path) -> None:
    result = tensor(tmp_path, Value("w", dtype, (2, 3), scales=Scales((0.5,), (3,))))
    assert (result.quant is not None) == has_quant


@pytest.mark.parametrize("dtype", ["f4", "i1", "u1", "i2", "i4", "i8", "?"])
def test_a_constant_is_read_as_it_was_written(dtype: str, tmp_path: Path) -> None:
    array = np.array([[1, 0, 1], [0, 5, 7]]).astype(dtype)
    file = read(tmp_path, Value.constant("w", array))
    result = file.array(file.subgraphs[0].tensors[2])
    assert result is not None
    assert result.dtype == array.dtype
    np.testing.assert_array_equal(result, array)
    assert file.array(file.subgraphs[0].tensors[0]) is None


@pytest.mark.parametrize("shape", [(2, 2), (2, 4), (7,)])
def test_a_constant_of_another_size_is_refused(shape: Shape, tmp_path: Path) -> None:
    file = read(tmp_path, replace(Value.constant("w", np.zeros((2, 3), np.float32)), shape=shape))
    with pytest.raises(ValueError, match="constant 'w' has 24 bytes for a shape of"):
        file.array(file.subgraphs[0].tensors[2])


def test_bytes_that_are_no_whole_elements_are_refused(tmp_path: Path) -> None:
    value = replace(Value.constant("w", np.zeros(7, np.uint8)), dtype=DType.F32, shape=(2,))
    file = read(tmp_path, value)
    with pytest.raises(ValueError, match="constant 'w' has 7 bytes for a shape of"):
        file.array(file.subgraphs[0].tensors[2])


def test_data_behind_the_flatbuffer_is_found_by_its_offset(tmp_path: Path) -> None:
    """An offset of 1 is what the converter writes before it knows it."""

    class Buffer:
        def __init__(self, offset: int) -> None:
            self.offset = offset

        def Offset(self) -> int:  # noqa: N802
            return self.offset

        def Size(self) -> int:  # noqa: N802
            return 3

        def DataLength(self) -> int:  # noqa: N802
            return 2 if self.offset == 1 else 0

        def DataAsNumpy(self) -> list[int]:  # noqa: N802
            return [8, 9]

    file = TfliteFile(tmp_path, bytes(range(9)), (), tuple(map(Buffer, (5, 2, 0, 1))))
    assert [None if raw is None else raw.tolist() for raw in (file.raw(info(buffer=i)) for i in range(-1, 5))] == [
        None, None, [2, 3, 4], None, [8, 9], None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ((2,), (1,), "a node names tensor 2 of 2"),
        ((-2,), (1,), "a node names tensor -2 of 2"),
        ((-1,), (1,), "an input or output of a graph is no tensor"),
        ((0,), (-1,), "an input or output of a graph is no tensor"),
    ],
)
def test_a_graph_names_tensors_that_there_are(
    inputs: Shape, outputs: Shape, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = source._Reader.numbers

    def replaced(reader: object, table: object, field: str, size: int = 4) -> tuple[int, ...]:
        if isinstance(table, tflite.SubGraph) and field in ("Inputs", "Outputs"):
            return inputs if field == "Inputs" else outputs
        return numbers(reader, table, field, size)  # type: ignore[arg-type]

    monkeypatch.setattr("mace_frontend_tflite.source._Reader.numbers", replaced)
    with pytest.raises(MaceError, match=message):
        read(tmp_path)


def test_the_mark_of_the_format(tmp_path: Path) -> None:
    file = tmp_path / "case.tflite"
    data = write(Written([Value("x", shape=(1,))], [], ["x"], ["x"]))
    file.write_bytes(data[:4] + b"TFL2" + data[8:])
    with pytest.raises(MaceError, match="it does not have the mark TFL3; convert or download it again"):
        source.read(file)
    file.write_bytes(data)
    assert source.read(file).subgraphs[0].inputs == (0,)


@pytest.mark.parametrize(
    ("signatures", "expected"),
    [
        ({}, ()),
        ({"serve": 0, "serve_again": 0}, ()),
        ({"encode": 0, "decode": 1}, ("signature 'encode' is read, not 'decode'",)),
        ({"decode": 1}, ("the main graph, which has no signature, is read, not 'decode'",)),
    ],
)
def test_a_graph_says_which_signature_was_read(
    signatures: dict[str, int], expected: tuple[str, ...], tmp_path: Path
) -> None:
    values = [Value("x", shape=(1,)), Value("y", shape=(1,))]
    graph = Written(values, [Step("RELU", ["x"], ["y"])], ["x"], ["y"])
    file = tmp_path / "case.tflite"
    file.write_bytes(write(graph, replace(graph, name="second"), signatures=signatures))
    notes = TfLite().load((file,), Model("case", (file,)), core_ops()).notes
    remedy = "; for another, convert the model again with that signature alone"
    assert notes == tuple(f"case.tflite: {text}{remedy}" for text in expected)
