"""The plugins here are not installed: tests/test_proof_wheels.py runs their tests where they are."""

collect_ignore_glob = ["*/tests/*"]
