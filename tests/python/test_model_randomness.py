"""Models draw random numbers only through task::Context: anything else would change with the batch split, workers or ranks."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORBIDDEN = re.compile(
    r"torch::dropout|at::dropout|nn::\w*[Dd]ropout|functional::\w*dropout|\bdropout_\(|native_dropout|feature_dropout|alpha_dropout"
    r"|torch::rand|at::rand|randn|randint|randperm|rand_like|(?:::|\.)(?:bernoulli|multinomial)_?\(|\bnormal_\(|\buniform_\(|exponential_\(|log_normal_\("
    r"|manual_seed|default_generator|getDefaultCPUGenerator|createCPUGenerator|std::mt19937|std::random_device|\brand\(\)|\bsrand\("
    r"|nn::init::(?:xavier|kaiming|normal|uniform|trunc)"
)


def violations(text):
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line).split("//")[0]
        if FORBIDDEN.search(code):
            found.append((number, line.strip()))
    return found


def sources():
    return [p for p in sorted((ROOT / "src/models").rglob("*")) if p.suffix in (".cpp", ".h") and not p.stem.endswith(("_test", "_test_tools"))]


def test_models_use_no_other_randomness():
    found = {str(p.relative_to(ROOT)): violations(p.read_text()) for p in sources()}
    found = {path: lines for path, lines in found.items() if lines}
    assert not found, f"use task::Context (dropout, drop_path, uniform, normal, stream) instead: {found}"


@pytest.mark.parametrize("line", [
    "auto y = torch::dropout(x, 0.1, true);", "x = torch::randn({3});", "w.normal_(0, 1);", "torch::manual_seed(1);",
    "std::mt19937 engine;", "torch::nn::Dropout drop(0.1);", "torch::nn::init::xavier_uniform_(w);"])
def test_the_rule_catches(line):
    assert violations(line)


@pytest.mark.parametrize("line", ["x = ctx.dropout(x, p, \"a\");", "ctx.normal({2}, \"n\");", "// torch::dropout is forbidden", "double dropout = 0.1;"])
def test_the_rule_lets_pass(line):
    assert not violations(line)
