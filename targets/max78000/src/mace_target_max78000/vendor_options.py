"""Lists the options of the vendor's command line that need no code of their own.

They have other names here, no effect, or are refused with a reason.

Source: the help of the vendor's synthesis tool, and what each option changes in the programs that it
writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SHORT = frozenset(("-e", "-v", "-L", "-D"))
"""Short forms of options that have no effect."""

SECOND_GENERATION = frozenset(
    (
        *("fifo_go", "one_shot", "link_layer", "start_layer", "pipeline", "pll", "max_speed"),
        *("read_ahead", "calcx4"),
    )
)
"""Options that the vendor's tool refuses for the first generation."""

SWITCHED_OFF: Mapping[str, str] = {
    "no_wfi": "wfi",
    "no_pipeline": "pipeline",
    "no_mexpress": "mexpress",
    "no_unload": "unload",
    "no_kat": "known_answer",
    "no_deduplicate_weights": "deduplicate_weights",
    "no_fifo_wait": "fifo_wait",
    "no_pll": "pll",
    "apb": "pll",
}
"""Options that switch off what is the default."""

SAME: Mapping[str, str] = {
    "max_verify_length": "max_checklines",
    "verify_kernels": "verify_weights",
    # the vendor's other loader of weights copies an array for each run of weight memory; what the memory then
    # holds is the same
    "old_kernel_loader": "compact_weights",
}
"""Two names of one option."""

WITHOUT_EFFECT = frozenset(
    (
        *(
            "new_kernel_loader",
            "verbose",
            "log",
            "no_log",
            "log_intermediate",
            "log_pooling",
            "log_filename",
            "short_log",
            "log_last_only",
        ),
        *(
            "verbose_all",
            "debug",
            "debug_computation",
            "debug_latency",
            "no_progress",
            "overwrite",
            "embedded_code",
            "no_timer",
        ),
        *(
            "compact_data",
            "no_compact_data",
            "display_checkpoint",
            "allow_streaming",
            "debug_new_streaming",
            "mlator_noverify",
        ),
        *(
            "no_scale_output",
            "balance_speed",
            "no_warn_zero",
            "ignore_energy_warning",
            "ignore_mlator_warning",
            "kernel_format",
        ),
        *(
            "no_version_check",
            "version_check_interval",
            "upstream",
            "yamllint",
            "top_level",
            "queue_name",
            "autogen",
            "autogen_list",
        ),
        *(
            "timeout",
            "riscv_flash",
            "riscv_cache",
            "unroll_mlator",
            "unroll_8bit",
            "unroll_wide",
            "eclipse_includes",
        ),
        *("eclipse_variables", "eclipse_openocd_args", "debugwait", "slow_load"),
    )
)
"""Options of the vendor's tool that change nothing in the generated program, or ask for what is always done.

`slow_load` slows the loading of a simulation only.
"""


@dataclass(frozen=True)
class RefusedOptions:
    """Options that are refused for one reason.  reason: why.  remedy: what to do instead."""

    names: tuple[str, ...]
    reason: str
    remedy: str


REFUSED: tuple[RefusedOptions, ...] = (
    RefusedOptions(
        (
            *(
                "rtl",
                "rtl_sim",
                "rtl_preload",
                "rtl_preload_weights",
                "input_csv",
                "input_csv_format",
                "input_csv_retrace",
            ),
            *(
                "input_csv_period",
                "input_pix_clk",
                "input_sync",
                "input_fifo",
                "input_filename",
                "output_filename",
                "runtest_filename",
            ),
            *(
                "output_config_filename",
                "output_data_filename",
                "output_weights_filename",
                "output_bias_filename",
            ),
            *(
                "output_pass_filename",
                "legacy_test",
                "legacy_kernels",
                "test_bist",
                "result_output",
                "pretend_zero_sram",
            ),
        ),
        "is for simulations of the chip's logic, which are not generated",
        "leave it out; `mace validate` runs the firmware on an emulated chip",
    ),
    RefusedOptions(
        ("weight_input", "bias_input", "weight_start", "sample_numpy_filename"),
        "is for the development of the vendor's tool",
        "leave it out; weights come from --checkpoint-file, the sample from --sample-input",
    ),
    RefusedOptions(
        ("apb_base", "max_proc", "ignore_hw_limits", "no_error_stop"),
        "is for chips other than the MAX78000 and the MAX78002, whose limits hold always",
        "leave it out; what is beyond a limit would compute something else than the network",
    ),
    RefusedOptions(
        ("verify_writes",),
        "would read each register back after it is written",
        "leave it out; --verify-weights reads the weights back, "
        "and the known-answer test checks what follows from all of them",
    ),
    RefusedOptions(
        ("energy",),
        "measures with the power monitor of the vendor's evaluation kit, whose protocol is not public",
        "leave it out; --timer N measures the time of an inference, report.txt estimates its cycles",
    ),
    RefusedOptions(
        ("clock_trim",),
        "writes trim registers of the oscillators, which are calibrated in production",
        "leave it out, or write them in board_init of the board layer",
    ),
    RefusedOptions(
        ("stop_start",),
        "is a test of cnn_stop and cnn_continue",
        "leave it out; the application may call both after cnn_start",
    ),
    RefusedOptions(
        ("repeat_layers",),
        "computes the network several times in one run for measurements; "
        "from the second time on its results mean nothing",
        "leave it out, and run the network several times in the application",
    ),
    RefusedOptions(
        ("forever",),
        "makes a program that never ends and tells no result",
        "leave it out, and call load_input, cnn_start and board_wait in a loop of the application",
    ),
    RefusedOptions(
        ("fixed_input",),
        "replaces the sample by alternating bits, for which there is no known answer",
        "name a sample with such values as --sample-input",
    ),
    RefusedOptions(
        ("reshape_inputs",),
        "drops channels of the sample that the first layer has no weights for",
        "store the sample without them",
    ),
    RefusedOptions(
        ("input_split",),
        "splits the array of the input into several, which are copied one after another",
        "leave it out; the input is one array for each data memory",
    ),
    RefusedOptions(
        ("debug_snoop", "snoop_loop"),
        "is a test of the registers of conditional layers",
        "leave it out; the key snoop of the description sets these registers",
    ),
    RefusedOptions(
        ("no_riscv_flash", "no_riscv_cache"),
        "would run the RISC-V core from memory or without its cache; "
        "the program runs from flash, through the cache",
        "leave it out",
    ),
    RefusedOptions(
        ("no_greedy_kernel",),
        "is no option of the vendor's tool any more",
        "leave it out",
    ),
)
"""Options of the vendor's tool that are refused by name."""

BASE_FREE = frozenset(
    (
        *(
            "override_start",
            "override_rollover",
            "override_delta1",
            "override_delta2",
            "input_offset",
            "synthesize_input",
        ),
        *("increase_start", "increase_delta1", "increase_delta2"),
    )
)
"""Numbers that the vendor's tool reads as Python does: decimal, or hexadecimal after 0x."""


def refusal(name: str) -> RefusedOptions | None:
    """Why an option, with _ in its name, is refused; None where it is not."""
    return next((refused for refused in REFUSED if name in refused.names), None)
