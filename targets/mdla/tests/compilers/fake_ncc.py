"""A test double of ncc-tflite, which compiles nothing; FAKE_NCC says how it behaves.

Its help has the options that the help of NeuroPilot 6 (runtime 6.3.3) lists, by their names alone.
"""

import os
import sys

STAMP = "MACE-TEST-DOUBLE"
HELP = """Usage: ncc-tflite [OPTION]... FILE
  --verify --no-verify --resize DIMS -s, --show-tflite
  -d, --dla-file FILE   -e -i -o
  --arch NAMES          mdla1.5, mdla2.0, mdla3.0, vpu
  --platform NAME  -O LEVEL  --opt-accuracy --opt-aggressive --relax-fp32
  --show-exec-plan --show-memory-summary --int8-to-uint8 --num-mdla --mdla-bw --mdla-freq
"""


def main(words: list[str]) -> int:
    mode = os.environ.get("FAKE_NCC", "")
    if mode == "fails":
        sys.stderr.write("ERROR: cannot parse the model\n")
        return 1 if words[0].startswith("--arch") else answer(words[0], mode)
    if words[0] in ("--version", "--help"):
        return answer(words[0], mode)
    source, product = words[-1], words[words.index("-d") + 1]
    with open(source, "rb") as file:
        assert file.read()[4:8] == b"TFL3"
    if mode != "silent":
        with open(product, "w", encoding="utf-8") as file:
            file.write(f"{STAMP} {' '.join(words)}")
    return 0


def answer(word: str, mode: str) -> int:
    if word == "--version":
        sys.stdout.write("no number\n" if mode == "nameless" else f"ncc-tflite 6.3.3 {STAMP}\n")
        return 0
    text = HELP.replace("mdla3.0, ", "") if mode == "old" else HELP
    sys.stdout.write(text.replace("--relax-fp32", "") if mode == "strict" else text)
    return 0


sys.exit(main(sys.argv[1:]))
