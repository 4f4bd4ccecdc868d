"""The FLAC manifest of data_flac against two pinned threads that only decode: how much of the machine the loader leaves unused."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/data"))
import prepare  # noqa: E402


def workload(env):
    manifest = prepare.trained_on(env, "speech", prepare.speech(env))
    text = f"manifest_filepath: {manifest}\nbatch_size: 8\nshuffle: true\nmin_audio_len_secs: 0\nprefetch_factor: 1\n"
    return Workload(
        "data_ceiling", "FLAC manifest, batch 8, 2 workers, against two pinned threads that decode the same files from memory and throw them away.",
        {"redline": prepare.redline(env, "data_flac", text, "audio", 2),
         "decode_only": [env.build / "bench/flac_ceiling", manifest, 2, prepare.SECONDS]},
        [Bar("samples_per_second", "redline", "decode_only", 0.9),
         Bar("cpu_seconds_per_1000_samples", "redline", "decode_only", 0.9, smaller_is_better=True,
             sentence="the same in CPU time, which other work on the machine disturbs less")], rounds=5)
