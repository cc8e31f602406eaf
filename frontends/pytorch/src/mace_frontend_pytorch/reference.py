"""The model in torch, for validation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mace_core.api import Files, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_pytorch.load import names, only
from mace_frontend_pytorch.program import missing, opened, quiet
from mace_frontend_pytorch.source import recognise


def reference(files: Files, model: Model) -> Reference | None:
    """Run the model on one thread; None if torch is not installed.

    The callable takes arrays by input name and gives arrays by output name, named as in the graph.
    """
    if missing():
        return None
    import torch

    program = opened(recognise(only(files, model)))
    inputs, outputs = names(program, model)

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.no_grad(), quiet():
                made = program.run([torch.from_numpy(np.array(arrays[name])) for name in inputs])
        except (RuntimeError, KeyError, TypeError, ValueError, NotImplementedError) as error:
            text = (str(error).strip() or type(error).__name__).splitlines()[-1]
            raise MaceError(
                program.file.name, f"torch refuses it: {text}", "validate against stored data instead"
            ) from error
        finally:
            torch.set_num_threads(threads)
        return {name: np.asarray(tensor.detach().numpy()) for name, tensor in zip(outputs, made, strict=True)}

    return Reference(run, f"PyTorch {torch.__version__}")
