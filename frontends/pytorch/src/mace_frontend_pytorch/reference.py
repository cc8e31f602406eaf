"""Runs a model in torch, for validation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mace_core.api import Files, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_pytorch.archive import recognize
from mace_frontend_pytorch.load import name_ports, only_file
from mace_frontend_pytorch.program import missing_packages, open_program, silence_torch


def reference(files: Files, model: Model, *, keeps_states: bool = False) -> Reference | None:
    """Return what runs the model on one thread; None if torch is not installed.

    The callable takes arrays by input name and returns arrays by output name, named as in the graph.

    keeps_states: whether a run continues from the buffers after the run before; otherwise each begins with
    the values in the file.
    """
    if missing_packages():
        return None
    import torch

    program = open_program(recognize(only_file(files, model)))
    inputs, outputs = name_ports(program, model)
    with silence_torch():
        compute = program.start_session() if keeps_states else program.run

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.no_grad(), silence_torch():
                tensors = compute([torch.from_numpy(np.array(arrays[name])) for name in inputs])
        except (RuntimeError, KeyError, TypeError, ValueError, NotImplementedError) as error:
            # The last line: errors of TorchScript begin with a traceback.
            text = (str(error).strip() or type(error).__name__).splitlines()[-1]
            problem = f"torch refuses it: {text}"
            raise MaceError(program.path.name, problem, "validate against stored data instead") from error
        finally:
            torch.set_num_threads(threads)
        pairs = zip(outputs, tensors, strict=True)
        return {name: np.asarray(tensor.detach().numpy()) for name, tensor in pairs}

    return Reference(run, f"PyTorch {torch.__version__}")
