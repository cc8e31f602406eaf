"""The source of a kernel: a template, and around it what every kernel needs to reach its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mace_core.emit.render import render
from mace_core.emit.text import CIdentifier, Code
from mace_core.program import Kernel
from mace_target_opencl.bounds import ARGUMENTS, CHECKS, check_macros
from mace_target_opencl.exact import forbid_contraction, is_contracted, is_exact
from mace_target_opencl.images import declare_image, list_image_macros
from mace_target_opencl.kernel_operand import KernelOperand
from mace_target_opencl.steps import NAMES, ElementStep
from mace_target_opencl.types import HALF, HALF_VALUE, INT, value_type
from mace_target_opencl.views import View

FACTORS = ("x", "w", "f")
"""Operands that kernels which sum in half precision or in integers load so; steps load all others."""

WINDOW_FACTORS = ("x", "f")
"""Those of a depthwise convolution in the kernel of a product."""


class KernelSource:
    """What the template of one kernel sees besides its constants.

    arguments: the declarations of the kernel's parameters.  pointers: statements that make a pointer of each
    pair, under the operand's name.  group: `number_group`.  images: the forms of operands in images.

    `LOAD_x(i)`, `LOAD4_x(i)`, `LOADU4_x(i)`, `STORE_y(v, i)` and `STORE4_y(v, i)` are macros of an operand,
    so that a template does not know in how many bits an element is stored. Those of four elements want a
    place that is a multiple of four, except for LOADU4: compilers load a vector whole only where they know
    that it is aligned. Operands in images have LOAD4, STORE4 and `PIXEL_x(column, row)`.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.operands: Sequence[KernelOperand] = kernel.params["operands"]  # type: ignore[assignment]
        self.steps: Sequence[ElementStep] = kernel.params["steps"]  # type: ignore[assignment]
        steps: Sequence[ElementStep] = kernel.params.get("window_steps", ())  # type: ignore[assignment]
        self.window_steps = steps
        self._window_name = f"{kernel.name}_window"
        self._types = {operand.name: value_type(operand.type) for operand in self.operands}
        self._sums_in_half = kernel.params.get("type") == HALF_VALUE
        self._sums_in_integers = is_exact(kernel) and kernel.params.get("type") == INT
        self._integer_factors: Sequence[str] = FACTORS if self._sums_in_integers else ()
        # Bytes that are multiplied four at a time are loaded as they are: all but those of a window.
        if kernel.params.get("dots"):
            self._integer_factors = WINDOW_FACTORS if kernel.params.get("window_axes") else ()
        self._is_checked = bool(kernel.params.get(CHECKS))

    def render(self) -> Code:
        """Return the complete source of the kernel."""
        params = dict(self.kernel.params)
        params.update(
            name=self.kernel.name,
            arguments=Code(", ".join([*map(_declare, self.operands), *self._list_check_arguments()])),
            pointers=Code("\n    ".join(_point(operand) for operand in self.operands if not operand.image)),
            images={str(operand.name): operand.image for operand in self.operands if operand.image},
            store=self.store,
            finish_window=self.finish_window,
            load=self.load,
            type_of=self._types.__getitem__,
            group=number_group,
            attributes=self._attributes(),
        )
        body = render(self.kernel.template, **params)
        macros = [_define(operand, self._find_macros(operand)) for operand in self.operands]
        # All kernels of a part are one source, and most of them have an operand x.
        undefined = [_undefine(operand) for operand in self.operands]
        source = Code("\n".join([*macros, *self._functions(), body, *undefined, ""]))
        return source if is_contracted(self.kernel) else forbid_contraction(source)

    def load(self, operand: str, view: View, width: int, index: str) -> Code:
        """Return the expression of `width` elements of an operand, for the result's from `index` on."""
        if width == 1:
            return Code(f"LOAD_{operand}({view.locate(index)})")
        kind = f"{self._types[CIdentifier(operand)]}{width}"
        if view.is_identity or (view.can_load(width) and view.strides[-1:] == (1,)):
            unaligned = "" if view.is_aligned(width) else "U"
            return Code(f"LOAD{unaligned}{width}_{operand}({view.locate(index)})")
        if view.can_load(width):
            return Code(f"({kind})(LOAD_{operand}({view.locate(index)}))")
        parts = (f"LOAD_{operand}({view.locate(f'({index} + {i})')})" for i in range(width))
        return Code(f"({kind})({', '.join(parts)})")

    def store(self, width: int, value: str, index: str, operand: str = "y") -> Code:
        """Return a block that computes the steps and stores `width` elements, from `index` on.

        index: the flat index of the first result, a multiple of `width`, an expression without side effects.
        """
        suffix = str(width) if width > 1 else ""
        lines = [f"const uint store_at = (uint)({index});"]
        first = self.kernel.params.get("value_type") or self._types[CIdentifier(operand)]
        # Steps compute in float, whatever the sums are computed in.
        # A template with `partial` has added its sums in float already.
        is_half = self._sums_in_half and not self.kernel.params.get("partial")
        result = f"FROM_HALF{suffix}({value})" if is_half else value
        lines.append(f"const {first}{suffix} v0 = {result};")
        for number, step in enumerate(self.steps):
            lines += self._compute(self.kernel.name, number, step, width)
        macro = f"STORE{suffix}_{operand}"
        lines.append(f"{macro}(v{len(self.steps)}, store_at);")
        return Code("{ " + "\n      ".join(lines) + " }")

    def finish_window(self, value: str, index: str, variable: str) -> Code:
        """Return a block that computes the steps of a window's four results, and assigns them.

        value: floats, or sums of integers.  index: that of the first result, as for `store`.
        variable: what a product multiplies.
        """
        lines = [f"const uint store_at = (uint)({index});", f"const {self._window_type}4 v0 = {value};"]
        for number, step in enumerate(self.window_steps):
            lines += self._compute(self._window_name, number, step, 4)
        result = f"v{len(self.window_steps)}"
        lines.append(f"{variable} = {f'TO_HALF4({result})' if self._sums_in_half else result};")
        return Code("{ " + "\n      ".join(lines) + " }")

    def _find_macros(self, operand: KernelOperand) -> Mapping[str, str]:
        macros = self._choose_macros(operand)
        return check_macros(macros, operand, self.operands.index(operand)) if self._is_checked else macros

    def _choose_macros(self, operand: KernelOperand) -> Mapping[str, str]:
        if operand.image is not None:
            return list_image_macros(operand, HALF_VALUE if self._is_half_factor(operand) else None)
        if self._is_half_factor(operand):
            return _list_half_loads(operand)
        if operand.name in self._integer_factors and operand.type != INT:
            return _list_integer_loads(operand)
        return _list_half_macros(operand) if operand.type == HALF else _list_macros(operand)

    @property
    def _window_type(self) -> str:
        """The type of what the steps of a window begin with."""
        return "int" if self._sums_in_integers else "float"

    def _is_half_factor(self, operand: KernelOperand) -> bool:
        return self._sums_in_half and operand.name in FACTORS

    def _list_check_arguments(self) -> Sequence[str]:
        return ARGUMENTS if self._is_checked else ()

    def _compute(self, name: str, number: int, step: ElementStep, width: int) -> list[str]:
        """Return the statements of a step.  name: of its function, before the number."""
        suffix = str(width) if width > 1 else ""
        lines, names = [], []
        for position, argument in enumerate(step.arguments):
            if argument is None:
                names.append(f"v{number}")
                continue
            kind = self._types[argument.operand]
            names.append(f"r{number}_{position}")
            loaded = self.load(argument.operand, argument.view, width, "store_at")
            lines.append(f"const {kind}{suffix} {names[-1]} = {loaded};")
        function = f"{name}_{number}"
        if width == 1:
            result = f"{function}({', '.join(names)})"
        else:
            # One element at a time: expressions need no second form for vectors, and compilers join them.
            calls = (f"{function}({', '.join(f'{n}.s{i:x}' for n in names)})" for i in range(width))
            result = f"({step.type}{width})({', '.join(calls)})"
        lines.append(f"const {step.type}{suffix} v{number + 1} = {result};")
        return lines

    def _functions(self) -> list[str]:
        """Return a function for each step."""
        written = next((operand.name for operand in self.operands if operand.is_written), None)
        first = self.kernel.params.get("value_type") or (self._types[written] if written else "")
        return [
            *self._declare_steps(self._window_name, self.window_steps, self._window_type),
            *self._declare_steps(self.kernel.name, self.steps, str(first)),
        ]

    def _declare_steps(self, name: str, steps: Sequence[ElementStep], first: str) -> list[str]:
        """Return the functions of steps.  first: type of what the first one takes."""
        functions, before = [], first
        for number, step in enumerate(steps):
            kinds = (before if a is None else self._types[a.operand] for a in step.arguments)
            declared = ", ".join(f"{kind} {argument}" for kind, argument in zip(kinds, NAMES, strict=False))
            head = f"{step.type} {name}_{number}({declared})"
            # A declaration before: some compilers warn of a function without one.
            functions.append(f"{head};\n{head} {{ return {step.expression}; }}")
            before = str(step.type)
        return functions

    def _attributes(self) -> Code:
        size: tuple[int, ...] = self.kernel.params["local_size"]  # type: ignore[assignment]
        return Code(f"__attribute__((reqd_work_group_size({', '.join(map(str, size))})))" if size else "")


def number_group(axis: int) -> Code:
    """Return the expression of a work-item's group.

    get_group_id alone counts from the first group of a slice, see opencl_enqueue.c. Unlike a quotient of
    get_global_id, the expression is one value for all work-items of a group, as compilers see.
    """
    return Code(f"(get_group_id({axis}) + get_global_offset({axis}) / get_local_size({axis}))")


def _declare(operand: KernelOperand) -> str:
    if operand.image is not None:
        return declare_image(operand)
    # Tensors share a buffer, and OpenCL passes buffers whole: a sub-buffer wants the device's alignment.
    const = "" if operand.is_written else "const "
    return f"__global {const}{operand.type} *{operand.name}_base, const ulong {operand.name}_offset"


def _point(operand: KernelOperand) -> str:
    const = "" if operand.is_written else "const "
    return f"__global {const}{operand.type} *{operand.name} = {operand.name}_base + {operand.name}_offset;"


def _list_macros(operand: KernelOperand) -> Mapping[str, str]:
    """Return the macros that load and store elements as they are."""
    name = operand.name
    return {
        f"LOAD_{name}(i)": f"{name}[i]",
        # Not vload4, which promises no alignment: NVIDIA's compiler makes four loads of it.
        f"LOAD4_{name}(i)": f"*(__global const {operand.type}4 *)({name} + (i))",
        f"LOADU4_{name}(i)": f"vload4(0, {name} + (i))",
        f"STORE_{name}(v, i)": f"{name}[i] = (v)",
        f"STORE4_{name}(v, i)": f"*(__global {operand.type}4 *)({name} + (i)) = (v)",
    }


def _list_half_macros(operand: KernelOperand) -> Mapping[str, str]:
    """Return the macros that convert elements in half precision to floats and back.

    They need no cl_khr_fp16, and what stands in HALF_STORAGE_PRELUDE.
    """
    name = operand.name
    return {
        f"LOAD_{name}(i)": f"vload_half((i), {name})",
        # Not vloada_half4, see HALF_STORAGE_PRELUDE.
        f"LOAD4_{name}(i)": f"mace_widen(*(__global const ushort4 *)({name} + (i)))",
        f"LOADU4_{name}(i)": f"vload_half4(0, {name} + (i))",
        f"STORE_{name}(v, i)": f"vstore_half((v), (i), {name})",
        f"STORE4_{name}(v, i)": f"*(__global ushort4 *)({name} + (i)) = mace_narrow(v)",
    }


def _list_half_loads(operand: KernelOperand) -> Mapping[str, str]:
    """Return the macros that load elements as numbers of half precision."""
    name = operand.name
    if operand.type == HALF:
        loads = f"LOAD_HALF({name}, i)", f"LOAD_HALF4({name}, i)"
    else:
        # What ports hold stays f32, see `half_storage`.
        loads = f"TO_HALF({name}[i])", f"TO_HALF4(*(__global const {operand.type}4 *)({name} + (i)))"
    return {f"LOAD_{name}(i)": loads[0], f"LOAD4_{name}(i)": loads[1]}


def _list_integer_loads(operand: KernelOperand) -> Mapping[str, str]:
    """Return the macros that load narrow integers as int."""
    name = operand.name
    return {
        f"LOAD_{name}(i)": f"((int){name}[i])",
        f"LOAD4_{name}(i)": f"convert_int4(*(__global const {operand.type}4 *)({name} + (i)))",
    }


def _define(operand: KernelOperand, macros: Mapping[str, str]) -> str:
    """Return the macros by which a kernel reaches an operand; loads alone where it does not write it."""
    chosen = {
        head: body for head, body in macros.items() if operand.is_written or not head.startswith("STORE")
    }
    return "\n".join(f"#define {head} {body}" for head, body in chosen.items())


def _undefine(operand: KernelOperand) -> str:
    loads, stores = ("LOAD", "LOAD4", "LOADU4", "PIXEL"), ("STORE", "STORE4")
    # C allows #undef of a macro that an operand does not have.
    macros = (*loads, *stores) if operand.is_written else loads
    return "\n".join(f"#undef {macro}_{operand.name}" for macro in macros)


def constants_of(params: Mapping[str, object]) -> str:
    """Return a text that differs wherever the source of two kernels of one template does."""
    # Sorted: lowerings, fusion and options add the same parameters in different orders.
    return repr(sorted(params.items(), key=lambda item: item[0]))
