"""Programs in C around a library of models, and the file in which they keep what drivers compile."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from mace_core.testing.compiled import case
from mace_core.testing.probe_program import FILE_CACHE, SESSION, ProbeProgram, generate_session, link_probe

SOURCE = """
#include <string.h>

#include "file_cache.h"
#include "session.h"

int main(int count, char **words) {
  const mace_cache cache = file_cache(words[1]);
  char *data = cache.reallocate(cache.context, NULL, 8);
  const size_t absent = cache.load(cache.context, "key", data, 8);
  cache.store(cache.context, "key", "entry", 6);
  memset(data, '-', 8);
  const size_t bytes = cache.load(cache.context, "key", NULL, 0);
  const int untouched = data[0] == '-';
  const size_t copied = cache.load(cache.context, "key", data, 8);
  printf("%d %s %d %zu %zu %d %zu %s\\n", count, session_models[0]->name, NUMBER, absent, bytes, untouched, copied,
         data);
  return cache.reallocate(cache.context, data, 0) != NULL;
}
"""


@pytest.mark.slow
def test_a_program_opens_the_library_and_keeps_an_entry_in_a_file(tmp_path: Path) -> None:
    source = tmp_path / "keep.c"
    source.write_text(SOURCE, encoding="utf-8")
    sources = generate_session(case("m", "Relu", [np.zeros(4, np.float32)]), "host")
    assert SESSION in {manifest.name for manifest in sources.manifests if manifest.joins_library}
    program = link_probe(ProbeProgram(source, (FILE_CACHE,), ("-DNUMBER=7",)), sources, tmp_path, ("-O0",))
    command = [program, tmp_path / "entry"]
    for absent in ("0", "6"):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout.split() == ["2", "m", "7", absent, "6", "1", "6", "entry"]
