"""Encodes a placed network: everything that its program brings onto the chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mace_core.ir import Array
from mace_frontend_ai8x.arithmetic import outputs
from mace_frontend_ai8x.network import Network
from mace_target_max78000.device import Chip
from mace_target_max78000.encode.bias_memory import place_bias
from mace_target_max78000.encode.control_registers import Control
from mace_target_max78000.encode.data_memory import make_input_blocks, make_known_answer
from mace_target_max78000.encode.hardware_layers import HardwareLayer, make_hardware_layers, used_quadrants
from mace_target_max78000.encode.layer_registers import LayerRegisters, RegisterPlan
from mace_target_max78000.encode.second_generation import SecondGeneration
from mace_target_max78000.encode.streaming import list_streams
from mace_target_max78000.encode.weight_memory import WeightRun, make_chunks, place_runs
from mace_target_max78000.image import Image
from mace_target_max78000.options import Options


@dataclass(frozen=True)
class Synthesis:
    """A network's program, and what it was made of.

    runs: where each layer's weights lie, by layer.
    numbers: of the layers in hardware.  outputs: what each layer computes of the network's sample, [channels,
    rows, columns].
    """

    image: Image
    units: tuple[HardwareLayer, ...]
    runs: Mapping[int, WeightRun]
    numbers: tuple[int, ...]
    outputs: tuple[Array, ...]


def synthesize(network: Network, options: Options, device: Chip) -> Synthesis:
    """Return the program of a network in which `check.find_faults` finds no fault.

    MaceError where weights or bias do not fit.
    """
    layers, quadrants = make_hardware_layers(network, device), used_quadrants(network)
    runs = place_runs(layers, device, options.deduplicate_weights)
    biases, memories = place_bias(layers, quadrants, device, options.ignore_bias_groups)
    plan = RegisterPlan(
        layers, quadrants, runs, biases, list_streams(layers, options, device), options, device
    )
    registers = (SecondGeneration if device.generation == 2 else LayerRegisters)(plan)
    control = Control(layers, quadrants, options, device)
    results = outputs(network, options)
    checked = [u for u in layers if network.layers[u.index].output and network.runs(u.index)]
    image = Image(
        device=device,
        kernels=make_chunks(layers, runs, device, options.zero_sram),
        bias=memories,
        init=tuple(control.init(registers.number(layers[-1]) + 1, bool(memories))),
        configure=(
            *registers.writes(),
            *(registers.clear_unused() if options.zero_unused else ()),
            *control.conditions(network.snoop),
            *control.fifo_control(),
        ),
        start=tuple(control.start(bool(network.snoop))),
        inputs=make_input_blocks(layers[0], network.sample, options, device),
        known_answer=make_known_answer([(u, results[u.index]) for u in checked], options, device),
        quadrants=quadrants,
        packing=options.mexpress,
    )
    return Synthesis(image, layers, runs, tuple(map(registers.number, layers)), results)
