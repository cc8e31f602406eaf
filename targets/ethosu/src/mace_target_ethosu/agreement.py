"""Compares the verdicts of the rules on a file's operators with Vela's own."""

from __future__ import annotations

from dataclasses import dataclass

from mace_core.errors import MaceError
from mace_core.json_types import Json
from mace_target_ethosu.judge import load_rules
from mace_target_ethosu.operators import OperatorView, read_operators
from mace_target_ethosu.options import EthosUOptions
from mace_target_ethosu.vela import OperatorRefusal, list_refusals


@dataclass(frozen=True)
class PairOfVerdicts:
    """The reasons of the rules and of Vela against one operator; None where it runs on the NPU."""

    code: str
    output: str
    rules: str | None
    vela: str | None

    @property
    def agrees(self) -> bool:
        """Whether both place the operator alike."""
        return (self.rules is None) == (self.vela is None)


@dataclass(frozen=True)
class Agreement:
    """The verdicts on all operators of one file, for one accelerator.

    failure: what Vela says of a file that it does not read at all; then there are no verdicts.
    """

    file: str
    accelerator: str
    verdicts: tuple[PairOfVerdicts, ...]
    failure: str = ""

    @property
    def differences(self) -> tuple[PairOfVerdicts, ...]:
        """The operators that rules and Vela place otherwise."""
        return tuple(verdict for verdict in self.verdicts if not verdict.agrees)

    def describe(self) -> list[str]:
        """Return a line with the counts, and one for each difference."""
        if self.failure:
            return [f"{self.file}, {self.accelerator}: {self.failure}"]
        npu = sum(verdict.vela is None for verdict in self.verdicts)
        same = len(self.verdicts) - len(self.differences)
        lines = [
            f"{self.file}, {self.accelerator}: {len(self.verdicts)} operators, "
            f"{npu} on the NPU by Vela, {same} agree"
        ]
        for verdict in self.differences:
            rules, vela = verdict.rules or "NPU", verdict.vela or "NPU"
            lines.append(f"  {verdict.code} ({verdict.output!r}): rules: {rules}; Vela: {vela}")
        return lines

    def as_json(self) -> Json:
        """Return the agreement as plain data."""
        rows: list[Json] = [
            {"operator": v.code, "output": v.output, "rules": v.rules, "vela": v.vela} for v in self.verdicts
        ]
        return {
            "file": self.file,
            "accelerator": self.accelerator,
            "failure": self.failure,
            "operators": rows,
        }


def compare(content: bytes, options: EthosUOptions, name: str) -> Agreement:
    """Judge every operator of a TensorFlow Lite file, and ask Vela."""
    rules = load_rules(options.generation)
    try:
        refusals = list_refusals(content, options, name)
    except MaceError as error:
        # Vela judges a file as a whole or not at all, so that no operator is left to compare.
        return Agreement(name, options.accelerator, (), str(error))
    verdicts = []
    for operator in read_operators(content):
        refusal = rules.judge(operator)
        verdicts.append(
            PairOfVerdicts(
                operator.code,
                operator.ofm.name,
                None if refusal is None else refusal.reason,
                _reason(operator, refusals),
            )
        )
    return Agreement(name, options.accelerator, tuple(verdicts))


def _reason(operator: OperatorView, refusals: list[OperatorRefusal]) -> str | None:
    """Return Vela's reason for an operator, None if it runs on the NPU.

    Vela makes an operator of its own of a fused activation, and calls the tensor between them NAME_act.
    """
    names = {operator.ofm.name, f"{operator.ofm.name}_act"}
    return next((refusal.reason for refusal in refusals if refusal.output in names), None)
