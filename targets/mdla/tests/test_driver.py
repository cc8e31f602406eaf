"""The driver against a stub of the Neuron adapter that checks each call: what goes well, what the vendor's library lacks, and faults."""

from __future__ import annotations

import pytest
from neuron_session import SANITIZED, SessionProgram, build_adapter, build_session, small_graph

NEVER, AT_OPEN, AT_RUN = 0, 1, 2


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the stub of the adapter is installed."""
    return {"LD_LIBRARY_PATH": str(build_adapter(tmp_path_factory.mktemp("vendor")))}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> SessionProgram:
    return build_session(small_graph(), tmp_path_factory.mktemp("session"), flags=SANITIZED)


@pytest.mark.slow
def test_results_are_those_of_the_references(session: SessionProgram, adapter: dict[str, str]) -> None:
    told = session.run(NEVER, 3, 2, environment=adapter)
    assert told.said("open") == ["open 0 "] * 2
    assert told.said("run") == ["run 0 "] * 6
    assert told.said("part") == ["part 0 mdla: libneuron_adapter.so 6.0.3, device of its choice"] * 2
    assert list(told.outputs) == session.expected()
