"""The accelerator's clock: where it comes from and by what it is divided.

Source: the vendor's document, and the clocks that the vendor's programs choose for the same options.
"""

from __future__ import annotations

from dataclasses import dataclass

from mace_target_max78000.device import Chip
from mace_target_max78000.options import Options

MAX_HERTZ_WITHOUT_PIPELINE = 50_000_000
"""What the accelerator can follow while its pipeline is off."""
IDLE_DIVIDER = 4
"""Of the PLL while weights and data are loaded and read."""


@dataclass(frozen=True)
class Clock:
    """A source and its dividers.

    pll: whether it is the PLL, else the peripheral clock of the processor.  divider: of the source while
    weights and data are loaded and read.  inference_divider: of the source during the inference.  hertz:
    during the inference.
    """

    pll: bool
    divider: int
    inference_divider: int
    hertz: int

    @property
    def switches(self) -> bool:
        """Whether the program changes the divider for the inference."""
        return self.inference_divider != self.divider


def choose_clock(options: Options, device: Chip) -> Clock:
    """Choose the clock of a program.

    With the pipeline the PLL is divided less for the inference than before and after it, which saves energy,
    unless the option max_speed asks for more. Without the pipeline the divider is the smallest power of two
    that the accelerator can follow.
    """
    pll = device.features.pipeline and options.pll
    pipeline = device.features.pipeline and options.pipeline
    source = device.hertz if pll else device.peripheral_hertz
    divider = options.clock_divider
    if divider is None:
        divider = 1
        # Without the pipeline the accelerator cannot follow the undivided clock.
        while not pipeline and source // divider > MAX_HERTZ_WITHOUT_PIPELINE:
            divider *= 2
    # Loading at the full clock is faster and takes twice the energy (vendor's document, --max-speed).
    if not pll or options.max_speed:
        return Clock(pll, divider, divider, source // divider)
    inference_divider = divider if pipeline else IDLE_DIVIDER
    return Clock(pll, IDLE_DIVIDER, inference_divider, source // inference_divider)
