"""What a user may ask of the program beside the network; names and meanings are those of the maker's command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """All options, with the maker's defaults.

    documented: where the maker's tool contradicts its documentation, do as the document says; the default does as the tool does.
    timer: number of the timer that measures the inference; None for none.  boost: port and pin of the supply boost.
    table_driven: registers are written from a table, and weights are packed bytes, which takes far less flash.
    """

    fifo: bool = False
    fast_fifo: bool = False
    fast_fifo_quad: bool = False
    fifo_wait: bool = True
    fifo_go: bool = False
    avg_pool_rounding: bool = False
    simple1b: bool = False
    documented: bool = False
    # Generated code
    prefix: str = "cnn"
    board_name: str = "EvKit_V1"
    table_driven: bool = False
    compact_weights: bool = False
    mexpress: bool = True
    mlator: bool = False
    mlator_verify: bool = True
    softmax: bool = False
    boost: tuple[int, int] | None = None
    timer: int | None = None
    wfi: bool = True
    define: tuple[str, ...] = ()
    pipeline: bool = True
    max_speed: bool = False
    riscv: bool = False
    riscv_debug: bool = False
    riscv_exclusive: bool = False
    unload: bool = True
    known_answer: bool = True
    scale_output: bool = True
    verify_weights: bool = False
    c_filename: str = "main.c"
    api_filename: str = "cnn.c"
    weight_filename: str = "weights.h"
    sample_filename: str = "sampledata.h"
    sample_output_filename: str = "sampleoutput.h"
    # Network
    stop_after: str | None = None
    one_shot: bool = False
    ignore_streaming: bool = False
    ignore_bias_groups: bool = False
    deduplicate_weights: bool = True
    overlap_data: bool = False
    input_offset: int | None = None
    synthesize_input: int | None = None
    synthesize_words: int = 8
    max_verify_length: int | None = None
    max_checklines: int | None = None
    link_layer: bool = False
    start_layer: int = 0
    # Streaming
    increase_start: int = 2
    override_start: int | None = None
    override_rollover: int | None = None
    increase_delta1: int = 0
    override_delta1: int | None = None
    increase_delta2: int = 0
    override_delta2: int | None = None
    # Hardware
    powerdown: bool = False
    deepsleep: bool = False
    write_zero_registers: bool = False
    init_tram: bool = False
    zero_sram: bool = False
    zero_unused: bool = False
    ready_sel: int = 0
    ready_sel_fifo: int = 0
    ready_sel_aon: int = 0
