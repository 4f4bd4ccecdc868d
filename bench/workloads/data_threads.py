"""The FLAC manifest of data_flac against loaders that use threads: SPDL and Grain."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/data"))
import prepare  # noqa: E402


def workload(env):
    manifest = prepare.trained_on(env, "speech", prepare.speech(env))
    text = f"manifest_filepath: {manifest}\nbatch_size: 8\nshuffle: true\nmin_audio_len_secs: 0\nprefetch_factor: 1\n"
    peers = {f"{name}_{t}": prepare.peer(env, f"{name}_flac.py", manifest, t, 8) for name in ("spdl", "grain") for t in (2,)}
    return Workload(
        "data_threads", "FLAC manifest, batch 8, float32 mono, against SPDL 0.8 and Grain 0.2 with soundfile in threads.",
        {"redline": prepare.redline(env, "data_flac", text, "audio", 2), **peers},
        [Bar("samples_per_second", "redline", "|".join(peers), 1.0, sentence="no bar was set; 1 means not slower"),
         Bar("peak_pss_bytes", "redline", "|".join(peers), 1.0, smaller_is_better=True, sentence="no bar was set")])
