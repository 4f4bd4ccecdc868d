"""One clip in a hundred is damaged: what the substitutes cost redline itself."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/data"))
import prepare  # noqa: E402


def workload(env):
    manifest = prepare.trained_on(env, "speech", prepare.speech(env))
    damaged = prepare.damaged(env, manifest)
    keys = "batch_size: 8\nshuffle: true\nmin_audio_len_secs: 0\nprefetch_factor: 1\nmax_bad_fraction: 0.05\n"
    variants = {name: prepare.redline(env, f"data_{name}", f"manifest_filepath: {path}\n{keys}", "audio", 2)
                for name, path in (("sound", manifest), ("one_percent_damaged", damaged))}
    return Workload(
        "data_corrupt", "The clips of data_flac, 1 % of them damaged in five ways, against the same without damage.", variants,
        [Bar("samples_per_second", "one_percent_damaged", "sound", 0.98, sentence="at most 2 % slower")], rounds=5)
