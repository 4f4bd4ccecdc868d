"""The same clips in tars, against webdataset."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/data"))
import prepare  # noqa: E402


def workload(env):
    manifest = prepare.trained_on(env, "speech", prepare.speech(env))
    tars = prepare.once(env.work / "tars", [env.redline, "data", "tar", manifest, "--out", "@OUT@", "--format", "webdataset", "--num-shards", 16])
    text = f"path: {tars}/shard-{{000000..000015}}.tar\nbatch_size: 8\nshuffle: true\nmin_audio_len_secs: 0\nprefetch_factor: 1\n"
    peers = {f"webdataset_{w}": prepare.peer(env, "webdataset_flac.py", tars, w, 8) for w in (0, 1, 2, 4)}
    best = "|".join(peers)
    return Workload(
        "data_tar", "The clips of data_flac in 16 tars.", {"redline": prepare.redline(env, "data_tar", text, "audio", 2), **peers},
        [Bar("samples_per_second", "redline", best, 1.6),
         Bar("peak_pss_bytes", "redline", best, 2.0, smaller_is_better=True, chosen_by="samples_per_second",
             sentence="peak PSS of the process tree, the peer with its fastest worker count"),
         Bar("first_batch_seconds", "redline", best, 2.0, smaller_is_better=True, sentence="from loader construction")])
