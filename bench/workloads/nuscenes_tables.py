"""Loading nuScenes tables of the size of v1.0-trainval (generated, 2.6 million rows of sample_data; NUSCENES_SHARE=0.25 for a quarter) against nuscenes-devkit."""
import os
import subprocess

from frame import Bar, ROOT, Workload


def workload(env):
    share = os.environ.get("NUSCENES_SHARE", "1")
    folder = env.work / f"nuscenes_tables_{share}"
    if not (folder / "done").exists():
        subprocess.run([env.peers_python, ROOT / "bench/lss/make_tables.py", folder / "v1.0-trainval", share], check=True)
        (folder / "done").touch()
    return Workload(
        "nuscenes_tables", f"From cold process to joined tables, {share} of trainval's size.",
        {"redline": [env.build / "bench/nuscenes_tables_bench", folder / "v1.0-trainval"], "devkit": [env.peers_python, ROOT / "bench/lss/peer_tables.py", folder]},
        [Bar("load_seconds", "redline", "devkit", 5.0, smaller_is_better=True), Bar("mib", "redline", "devkit", 2.0, smaller_is_better=True)], rounds=1,
        notes="redline reads the training split (700 of 850 scenes, key frames, seven sensors) and drops the rest as it goes; the devkit keeps every row. A job with a validation set reads the tables a second time for it. Two runs a side.")
