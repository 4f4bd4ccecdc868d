"""A recorded training step, compiled with Inductor, in a process of its own.

`redline` records the operators that its own C++ training step calls (src/train/compile) and starts this in a child without network. The
result is a package that the training process loads without Python: weights, what the task prepared, draws and the loss scale in; loss,
statistics and gradients out. Nothing here knows a model: operators that are not LibTorch's come with their schema and the shapes they
gave, and are called back in the training process.
"""
import argparse
import json
import os
import shutil
import sys


def check_compiler():
    compiler = os.environ.get("CXX") or "g++"
    if shutil.which(compiler) is None:
        sys.exit(f"there is no C++ compiler: '{compiler}' was not found on the path")


def step_back():
    """Where memory ends, this process goes first and not the training; beside training it takes what is left of the processors."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass
    if "--background" in sys.argv:
        os.nice(10)


check_compiler()  # before the seconds that the next imports take
step_back()

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402


def empty_like_recorded(layout):
    return torch.empty_strided(layout["shape"], layout["stride"], dtype=getattr(torch, layout["dtype"]), device=layout["device"])


def shapes_of(args):
    return tuple(tuple(arg.shape) if isinstance(arg, torch.Tensor) else arg for arg in args if not isinstance(arg, list))


class OwnOperators:
    """Operators of the training process: declared here, with results of the recorded shapes, and never run."""

    def __init__(self, program):
        self.results = {}
        for name, schema in program["own_operators"].items():
            torch.library.define(name, schema[len(name):])
            torch.library.register_fake(name, self.fake(name))

    def fake(self, name):
        def made(*args):
            layouts = self.results[name, shapes_of(args)]
            results = [empty_like_recorded(layout) for layout in layouts]
            return results[0] if len(results) == 1 else tuple(results)
        return made

    def learn(self, name, args, layouts):
        self.results[name, shapes_of(args)] = layouts


class RecordedStep(torch.nn.Module):
    """Calls the recorded operators one after the other."""

    def __init__(self, program, constants, own):
        super().__init__()
        self.program, self.own = program, own
        for constant in program["constants"]:
            number = constant["number"]
            value = empty_like_recorded(constant)
            value.copy_(constants[str(number)])
            self.register_buffer(f"constant_{number}", value)
        self.operators = [self.operator(call) for call in program["calls"]]

    @staticmethod
    def operator(call):
        space, name = call["op"].split("::")
        packet = getattr(getattr(torch.ops, space), name)
        return getattr(packet, call["overload"] or "default")

    def argument(self, value, values):
        if not isinstance(value, dict):
            return value
        (kind, content), = value.items()
        if kind == "t":
            return values[content]
        if kind == "list":
            return [self.argument(item, values) for item in content]
        if kind == "float":
            return float(content)
        if kind == "text":
            return content
        if kind == "device":
            return torch.device(content)
        return getattr(torch, content)  # dtype, layout, memory format

    def forward(self, *inputs):
        values = {spec["number"]: tensor for spec, tensor in zip(self.program["inputs"], inputs)}
        for constant in self.program["constants"]:
            values[constant["number"]] = getattr(self, f"constant_{constant['number']}")
        for call, operator in zip(self.program["calls"], self.operators):
            arguments = [self.argument(value, values) for value in call["args"]]
            if "layouts" in call:
                self.own.learn(call["op"], arguments, call["layouts"])
            positional, named = [], {}
            for argument, declared in zip(arguments, operator._schema.arguments):
                if declared.kwarg_only:
                    named[declared.name] = argument
                else:
                    positional.append(argument)
            results = operator(*positional, **named)
            if len(call["out"]) == 1:
                results = (results,)
            for number, result in zip(call["out"], results):
                if isinstance(number, dict):
                    values.update(zip(number["list"], result))
                elif number is not None:
                    values[number] = result
        return [values[number] for number in self.program["outputs"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("constants")
    parser.add_argument("target")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--torch", required=True, help="version of the LibTorch that is to run the package")
    parser.add_argument("--background", action="store_true", help="training goes on meanwhile")
    arguments = parser.parse_args()
    if torch.__version__.split("+")[0] != arguments.torch:
        sys.exit(f"the Python environment has torch {torch.__version__}, whose packages LibTorch {arguments.torch} cannot run")
    with open(arguments.program) as file:
        program = json.load(file)
    torch.set_num_threads(arguments.threads)  # a kernel's threads are fixed when it is compiled
    own = OwnOperators(program)
    step = RecordedStep(program, load_file(arguments.constants), own)
    inputs = tuple(empty_like_recorded(layout) for layout in program["inputs"])
    with torch.no_grad():
        exported = torch.export.export(step, inputs, strict=False)
    # Half of the time went into headers that are compiled ahead for one use, and into trying out each instruction set that
    # the processor says it has; a compiler that does not know one of them fails on the kernels, which is said.
    options = {"compile_threads": 1, "aot_inductor.precompile_headers": False, "cpp.vec_isa_ok": True}
    torch._inductor.aoti_compile_and_package(exported, package_path=arguments.target, inductor_configs=options)


if __name__ == "__main__":
    main()
