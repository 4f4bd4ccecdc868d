"""Generated data for the loader benchmarks, made once with redline itself; and the commands both sides run."""
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 2.5


def once(folder, command):
    """Runs the command, whose output goes to a temporary folder, unless `folder` is there already."""
    folder = pathlib.Path(folder)
    if not folder.exists():
        temporary = folder.with_name(folder.name + ".part")
        subprocess.run([str(word).replace("@OUT@", str(temporary)) for word in command], check=True, stdout=sys.stderr)
        temporary.rename(folder)
    return folder


def speech(env):
    return once(env.work / "speech", [env.redline, "data", "synth", "speech", "--out", "@OUT@", "--num", "2000", "--seed", "1"])


def damaged(env, manifest):
    """The manifest again, in which every hundredth line names a damaged copy: empty, cut, flipped bits, wrong magic, or no file at all."""
    folder = manifest.parent  # the same folder and relative names: opening must cost the same on both sides
    (folder / "bad").mkdir(exist_ok=True)
    lines = []
    for number, line in enumerate(manifest.read_text().splitlines()):
        entry = json.loads(line)
        source = folder / entry["audio_filepath"]
        if number % 100 == 37:
            whole, kind, copy = source.read_bytes(), number // 100 % 5, folder / "bad" / f"{number}.flac"
            flipped = bytearray(whole)
            flipped[len(whole) // 2] ^= 0xFF
            content = {0: b"", 1: whole[:len(whole) // 2], 2: bytes(flipped), 3: b"JUNK" + whole[4:]}.get(kind)
            if content is not None:
                copy.write_bytes(content)
            entry["audio_filepath"] = str(copy.relative_to(folder))
        lines.append(json.dumps(entry))
    (folder / "damaged_manifest.json").write_text("\n".join(lines) + "\n")
    return folder / "damaged_manifest.json"


def sequences(env, rows, name):
    return once(env.work / name, [env.redline, "data", "synth", "sequences", "--out", "@OUT@", "--num", rows, "--seed", "1"])


def pictures(env):
    return once(env.work / "pictures", [env.redline, "data", "synth", "images", "--out", "@OUT@", "--num", "1500", "--seed", "1",
                                        "--width", "384", "--height", "384"])


def trained_on(env, kind, folder):
    """The training part of a generated data set, as the generator's own layout names it."""
    candidates = {"speech": ["train_manifest.json"], "other": ["train"]}[kind if kind == "speech" else "other"]
    for name in candidates:
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(f"no training part below {folder}")


def config(env, name, text):
    path = env.work / f"{name}.yaml"
    path.write_text(text)
    return path


def redline(env, name, text, kind, workers):
    return [sys.executable, HERE / "tree.py", env.redline, "-q", "data", "bench", config(env, name, text), "--kind", kind, "--workers",
            workers, "--seconds", SECONDS, "--json"]


def peer(env, script, *arguments):
    return [sys.executable, HERE / "tree.py", env.peers_python, HERE / script, *arguments, SECONDS]
