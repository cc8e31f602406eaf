"""Defines the options of the target in a deployment file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from mace_core.calibration import tuned_costs
from mace_core.cost_options import read_costs
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.json_types import Json
from mace_core.tuning import tuning_file
from mace_core.winograd import ERROR, WinogradKeys
from mace_target_opencl.costs import Costs
from mace_target_opencl.kernel_request import NO_REQUEST, KernelRequest
from mace_target_opencl.limits import UNLIMITED, QueueLimits

TYPES = ("f32", "f16")
REGIONS = ("auto", "all", "worthwhile")
"""Which regions the GPU computes; "auto" is "worthwhile" for `runtime: cpu+gpu`, and else "all"."""
TYPED = ("storage", "arithmetic")
GROUPS = (256, 128, 64)
"""What `group_items` may be, the default first. Tiles have 64 work-items: fewer could not compute them."""

NAMES = (
    "storage",
    "arithmetic",
    "regions",
    "costs",
    "check_bounds",
    "group_items",
    "compute_units",
    "local_memory",
    "binaries",
)

MEASURED_UNITS = 132
"""Compute units of the NVIDIA H200, on which the numbers of groups that keep a device busy were measured."""

PHONE_UNITS = 8
"""Of the GPU of a phone or of a small board in the middle of what there is: 1 to 20."""

PHONE_ABIS = ("arm64*", "armeabi-v7a", "armhf", "riscv64")
"""ABIs of processors that such a GPU shares a chip with; those of laptops and servers are larger."""

MAX_UNITS = 1 << 16

SWITCHES = ("check_bounds", "local_memory")

UNITS = "compute_units"
"""The option, and the name of the number in tuning files."""


DATA_TYPES: Mapping[str, tuple[str, str]] = {
    "fp32_fp32": ("f32", "f32"),
    "fp16_fp32": ("f16", "f32"),
    "fp16_fp16": ("f16", "f16"),
}
"""The key `data_type` of a model -> storage and arithmetic, unless the options of the target state them."""


@dataclass(frozen=True)
class OpenclOptions:
    """What a model asks of the target.

    storage: the type in which floats lie in the GPU's memory.  arithmetic: the type in which kernels compute.
    is_selective: whether regions that the processor computes faster are left to it.  costs: by what that is
    estimated.  checks_bounds: whether kernels test every access.  winograd: the largest tile of Winograd's
    convolution that may be taken; 0 for none.  winograd_error: the largest that it may have; 0 for any.
    binaries: files of what devices compiled, relative to the folder of the model.
    group_items: the most work-items that may share the results of a product, in a group.
    compute_units: of the device, CL_DEVICE_MAX_COMPUTE_UNITS: what keeps all of them busy grows with it; 0:
    those that devices of the ABI have, see `for_abi`.
    local_memory: whether products take it to share operands and results in a group; None: as suits the ABI.
    limits: how calls are enqueued.
    images: whether filters and activations may lie in images.
    request: what a candidate asks for, see `candidates`.
    """

    storage: str = "f32"
    arithmetic: str = "f32"
    is_selective: bool = False
    costs: Costs = field(default_factory=Costs)
    checks_bounds: bool = False
    winograd: int = 0
    winograd_error: float = 0.0
    binaries: tuple[str, ...] = ()
    group_items: int = GROUPS[0]
    compute_units: int = 0
    local_memory: bool | None = None
    limits: QueueLimits = UNLIMITED
    images: bool = False
    request: KernelRequest = NO_REQUEST

    @property
    def uses_images(self) -> bool:
        """Whether filters and activations of the node that is lowered may lie in images.

        Not in a check build, whose kernels test accesses to buffers alone.
        """
        is_asked = self.images if self.request.images is None else self.request.images
        return is_asked and not self.checks_bounds

    def for_abi(self, abi: str) -> OpenclOptions:
        """Return the options with what nobody has stated or measured as devices of an ABI have it.

        GPUs of phones and small boards are about as large as `PHONE_UNITS`. Those of Arm have no local memory
        of their own: it lies in main memory, behind the same cache (Arm Mali GPU OpenCL Developer Guide), so
        that a copy to it and the barriers save nothing.
        """
        is_phone = any(fnmatchcase(abi, pattern) for pattern in PHONE_ABIS)
        units = PHONE_UNITS if is_phone else MEASURED_UNITS
        has_local = not is_phone if self.local_memory is None else self.local_memory
        return replace(self, compute_units=self.compute_units or units, local_memory=has_local)

    @classmethod
    def of(
        cls,
        options: Json,
        place: str,
        runtimes: Sequence[str] = (),
        defaults: tuple[str, str] = ("f32", "f32"),
    ) -> OpenclOptions:
        """Return the options by their names in the deployment file; one MaceError with every fault.

        place: where they stand, for messages.  runtimes: those of the model.  defaults: of `TYPED`.
        """
        types = [str(options.get(name, default)) for name, default in zip(TYPED, defaults, strict=True)]
        faults = _list_faults(options, place)
        # Kernels multiply in half precision only what is stored so: the option would do nothing.
        if types == ["f32", "f16"]:
            faults.append(f"{place}: arithmetic: f16 needs storage in f16 too; write storage: f16 beside it")
        # Its faults join the others, so that all are reported at once.
        costs = Costs()
        try:
            costs = read_costs(Costs(), options, place)
        except MaceError as error:
            faults.append(str(error))
        if faults:
            raise MaceError.of(faults)
        shares = {"cpu", "gpu"} <= {*runtimes}
        regions = options.get("regions", "auto")
        return cls(
            types[0],
            types[1],
            is_selective=regions == "worthwhile" or (regions == "auto" and shares),
            costs=costs,
            checks_bounds=options.get("check_bounds") is True,
            binaries=_strings(options.get("binaries", [])),
            group_items=int(str(options.get("group_items", GROUPS[0]))),
            compute_units=int(str(options.get(UNITS, 0))),
            local_memory=None if "local_memory" not in options else options["local_memory"] is True,
        )

    @classmethod
    def of_model(cls, model: Model) -> OpenclOptions:
        """Return the options that a model states; MaceError with every fault."""
        place = f"model {model.name!r}: target_options: opencl"
        defaults = DATA_TYPES.get(str(model.keys.get("data_type")), ("f32", "f32"))
        options = cls.of(model.options("opencl"), place, model.runtimes, defaults)
        limits = QueueLimits(
            bool(model.keys.get("limit_opencl_kernel_time")),
            int(str(model.keys.get("opencl_queue_window_size", 0))),
        )
        winograd = WinogradKeys.of_model(model)
        if winograd.error and options.storage == "f16":
            place, problem = f"model {model.name!r}: {ERROR}", "is measured in single precision, not in half"
            raise MaceError(place, problem, "leave it out, or store floats as f32")
        images = model.keys.get("cl_mem_type") == "image"
        numbers = dict(tuned_costs(model, "opencl"))
        tuned_place = f"{tuning_file(model)}: opencl"
        units = _read_tuned_units(numbers, tuned_place)
        measured = read_costs(Costs(), {"costs": numbers}, tuned_place)
        # What the deployment file states is stronger than what was measured.
        costs = read_costs(measured, model.options("opencl"), place)
        return replace(
            options,
            winograd=winograd.tile,
            winograd_error=winograd.error,
            limits=limits,
            images=images,
            costs=costs,
            compute_units=options.compute_units or units,
        )


def _read_tuned_units(numbers: dict[str, float], place: str) -> int:
    """Take the compute units out of the numbers of a tuning file; 0 where it has none."""
    units = numbers.pop(UNITS, 0)
    if units != int(units) or units > MAX_UNITS:
        problem = f"{units!r:.40} is no number of compute units"
        raise MaceError(f"{place}: {UNITS}", problem, "tune again, or remove it")
    return int(units)


def _is_list_of_strings(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)


def _strings(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def _list_faults(options: Json, place: str) -> list[str]:
    """Return the faults of each option but costs."""
    faults = [_describe_unknown(str(name), place) for name in options if name not in NAMES]
    for name in TYPED:
        value = options.get(name, "f32")
        if value not in TYPES:
            faults.append(f"{place}: {name}: {value!r:.40} is not allowed; write {' or '.join(TYPES)}")
    regions = options.get("regions", "auto")
    if regions not in REGIONS:
        faults.append(f"{place}: regions: {regions!r:.40} is not allowed; write {' or '.join(REGIONS)}")
    for name in SWITCHES:
        value = options.get(name, False)
        if not isinstance(value, bool):
            faults.append(f"{place}: {name}: {value!r:.40} is not allowed; write true or false")
    group = options.get("group_items", GROUPS[0])
    if not isinstance(group, int) or group not in GROUPS:
        faults.append(f"{place}: group_items: {group!r:.40} is not allowed; write 64, 128 or 256")
    units = options.get(UNITS, MEASURED_UNITS)
    if not isinstance(units, int) or isinstance(units, bool) or not 0 < units <= MAX_UNITS:
        problem = f"{units!r:.40} is not allowed; write what clinfo tells as Max compute units"
        faults.append(f"{place}: {UNITS}: {problem}")
    binaries = options.get("binaries", [])
    if not _is_list_of_strings(binaries):
        faults.append(f"{place}: binaries: {binaries!r:.40} is not allowed; write a list of files")
    return faults


def _describe_unknown(name: str, place: str) -> str:
    close = get_close_matches(name, NAMES, 1)
    remedy = f"did you mean {close[0]!r}?" if close else f"remove it; the options are {', '.join(NAMES)}"
    return f"{place}: {name!r:.40} is no option of the target; {remedy}"
