"""docs/new_task.md shows the example task that the tests of src/train compile and train; the two must not drift apart."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def code_blocks(text):
    return re.findall(r"```cpp\n(.*?)```", text, re.DOTALL)


def test_every_block_is_in_the_compiled_example():
    blocks = code_blocks((ROOT / "docs/new_task.md").read_text())
    sources = "\n".join((ROOT / "src/train/testing" / name).read_text() for name in ("example_task.h", "example_task.cpp"))
    assert len(blocks) >= 5
    squeezed = re.sub(r"\s+", "", sources)
    for block in blocks:
        for part in block.split("…"):
            assert re.sub(r"\s+", "", part) in squeezed, part
