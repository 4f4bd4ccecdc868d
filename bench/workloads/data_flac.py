"""FLAC clips of a manifest, batch 8, float32 mono, against PyTorch's DataLoader with soundfile."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/data"))
import prepare  # noqa: E402


def workload(env):
    manifest = prepare.trained_on(env, "speech", prepare.speech(env))
    text = f"manifest_filepath: {manifest}\nbatch_size: 8\nshuffle: true\nmin_audio_len_secs: 0\nprefetch_factor: 1\n"
    peers = {f"torch_{w}": prepare.peer(env, "torch_flac.py", manifest, w, 8) for w in (0, 1, 2, 4)}
    best = "|".join(peers)
    return Workload(
        "data_flac", "FLAC manifest, batch 8, float32 mono, padded, handed over as tensors.",
        {"redline": prepare.redline(env, "data_flac", text, "audio", 2), **peers},
        [Bar("samples_per_second", "redline", best, 1.6),
         Bar("peak_pss_bytes", "redline", best, 2.0, smaller_is_better=True, chosen_by="samples_per_second",
             sentence="peak PSS of the process tree, the peer with its fastest worker count"),
         Bar("first_batch_seconds", "redline", best, 2.0, smaller_is_better=True, sentence="from loader construction")])
