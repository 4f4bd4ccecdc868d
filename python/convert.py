"""Torch checkpoints to and from safetensors, in a process of its own.

`redline convert` starts this in a child without network, with bounded memory, and reads the result with its own checked reader: a pickle,
even one loaded with weights_only=True, never comes near the training process. Only tensors are taken out; anything else is listed and left
behind. Sizes are checked before anything of that size is made: a small file may claim or unpack to a very large one.
"""
import argparse
import errno
import io
import json
import os
import sys
import tarfile

import torch
from safetensors.torch import load_file, save_file

# Where projects put the weights inside a checkpoint, in the order we look. An exponential average is taken only when asked for.
WEIGHT_KEYS = ("state_dict", "model", "module", "model_state_dict", "net")
CONFIG_LIMIT_BYTES = 1 << 20


def fail(message):
    sys.exit("convert: " + message)


def is_memory_error(error):
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error) or "not enough memory" in str(error)


def check_size(what, size, most):
    if size > most:
        fail(f"{what} has {size:,} bytes, over the limit of {most:,}. If that is what it should have, give --memory (four times that size)")


def load_pickle(source, what):
    try:
        return torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds; all mean the same to the user
        if is_memory_error(error):
            raise
        fail(f"{what} cannot be loaded with weights_only=True: {str(error).splitlines()[0] if str(error) else type(error).__name__}")


def open_nemo(path, config_out, most):
    """The weights and (to config_out) the YAML of a .nemo file: a tar, read member by member, never extracted."""
    weights, total = None, 0
    with tarfile.open(path, "r:*") as archive:
        for member in archive:
            # Going on to the next member unpacks this one, so its size counts also when it is passed over.
            total += member.size
            check_size(f"{path}, unpacked as far as {member.name},", total, most)
            name = os.path.basename(member.name)
            if not member.isfile():
                continue
            if name == "model_weights.ckpt":
                weights = load_pickle(io.BytesIO(archive.extractfile(member).read()), f"{path}: {member.name}")
            elif name == "model_config.yaml" and config_out:
                if member.size > CONFIG_LIMIT_BYTES:
                    fail(f"{path}: {member.name} has {member.size} bytes, over the limit of {CONFIG_LIMIT_BYTES}")
                with open(config_out, "wb") as out:
                    out.write(archive.extractfile(member).read())
    if weights is None:
        fail(f"{path} holds no model_weights.ckpt; is it a .nemo file?")
    return weights


def find_state_dict(loaded, key, path):
    if key:
        for part in key.split("."):
            if not isinstance(loaded, dict) or part not in loaded:
                fail(f"{path} has no '{key}'; its keys: {', '.join(map(str, list(loaded)[:20])) if isinstance(loaded, dict) else 'none'}")
            loaded = loaded[part]
        return loaded
    for _ in range(3):  # a dictionary of weights may be wrapped more than once
        if not isinstance(loaded, dict):
            fail(f"{path} holds a {type(loaded).__name__}, not a dictionary of tensors")
        if any(isinstance(value, torch.Tensor) for value in loaded.values()):
            return loaded
        inner = next((loaded[name] for name in WEIGHT_KEYS if isinstance(loaded.get(name), dict)), None)
        if inner is None:
            break
        loaded = inner
    fail(f"{path} holds no dictionary of tensors; name it with --key. Its keys: {', '.join(map(str, list(loaded)[:20]))}")


def import_file(arguments):
    if not os.path.isfile(arguments.source):
        fail(f"there is no file {arguments.source}")
    if tarfile.is_tarfile(arguments.source) and arguments.source.endswith(".nemo"):
        loaded = open_nemo(arguments.source, arguments.config_out, arguments.most_bytes)
    else:
        loaded = load_pickle(arguments.source, arguments.source)
    state = find_state_dict(loaded, arguments.key, arguments.source)
    tensors, skipped, total = {}, [], 0
    for name, value in state.items():
        if isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_quantized:
            total += value.numel() * value.element_size()  # a view may claim far more than it stores
            check_size(f"{arguments.source}, its tensors as far as {name},", total, arguments.most_bytes)
            tensors[str(name)] = value.detach().contiguous().clone()  # tied weights become separate: the format has no sharing
        else:
            skipped.append(str(name))
    if not tensors:
        fail(f"{arguments.source} holds no tensors")
    save_file(tensors, arguments.target, metadata={"format": "pt"})
    print(json.dumps({"tensors": len(tensors), "skipped": skipped[:100]}))


def export_file(arguments):
    tensors = load_file(arguments.source)
    if not arguments.target.endswith(".nemo"):
        torch.save(tensors, arguments.target)
        return
    if not arguments.config:
        fail("a .nemo file needs its model_config.yaml: convert the run itself, or give it with --config")
    weights = io.BytesIO()
    torch.save(tensors, weights)
    with open(arguments.config, "rb") as file:
        config = file.read(CONFIG_LIMIT_BYTES + 1)
    if len(config) > CONFIG_LIMIT_BYTES:
        fail(f"{arguments.config} is larger than the limit of {CONFIG_LIMIT_BYTES} bytes for a config")
    with tarfile.open(arguments.target, "w") as archive:
        for name, content in (("./model_config.yaml", config), ("./model_weights.ckpt", weights.getvalue())):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    importer = commands.add_parser("import")
    importer.add_argument("source")
    importer.add_argument("target")
    importer.add_argument("--key", default="")
    importer.add_argument("--config-out", default="")
    exporter = commands.add_parser("export")
    exporter.add_argument("source")
    exporter.add_argument("target")
    exporter.add_argument("--config", default="")
    for command in (importer, exporter):
        command.add_argument("--most-bytes", type=int, required=True)
    arguments = parser.parse_args()
    try:
        import_file(arguments) if arguments.command == "import" else export_file(arguments)
    except Exception as error:
        if is_memory_error(error):
            fail(f"{arguments.source} needs more memory than the limit of {4 * arguments.most_bytes:,} bytes; give more with --memory")
        if getattr(error, "errno", None) == errno.EFBIG or "File too large" in str(error):
            fail(f"the result of {arguments.source} is larger than the limit of {4 * arguments.most_bytes:,} bytes; give more with --memory")
        fail(f"{arguments.source} cannot be converted: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
