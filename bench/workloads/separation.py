"""All separation metrics of 20,000 embeddings of width 128, against scikit-learn."""
import subprocess

from frame import Bar, ROOT, Workload

MAKE = """
import sys, numpy as np
from safetensors.numpy import save_file
draw = np.random.default_rng(3)
labels = draw.integers(0, 50, 20_000)
vectors = draw.normal(size=(50, 128))[labels] * 0.25 + draw.normal(size=(20_000, 128))
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
save_file({"embeddings": vectors.astype(np.float32), "labels": labels.astype(np.int64)}, sys.argv[1])
"""


def workload(env):
    file = env.work / "separation_20000x128.safetensors"
    if not file.exists():
        subprocess.run([env.peers_python, "-c", MAKE, file], check=True)
    peer = [env.peers_python, ROOT / "bench/embedding/sklearn_separation.py", file]
    return Workload(
        "separation", "Silhouette, Davies-Bouldin, Calinski-Harabasz, recall@k and NMI of 20,000 x 128 embeddings in 50 classes; redline also measures mAP@R and the distance ratio.",
        {"redline": [env.build / "bench/separation_bench", file], "sklearn": peer, "sklearn_map": [*peer, "map"]},
        [Bar("seconds", "redline", "sklearn", 1.0, smaller_is_better=True, sentence="scikit-learn without mAP@R"),
         Bar("seconds", "redline", "sklearn_map", 1.0, smaller_is_better=True, sentence="scikit-learn with mAP@R"),
         Bar("peak_rss_bytes", "redline", "sklearn", 4.0, smaller_is_better=True, sentence="peak memory of the process")],
        rounds=3, notes="k-means is scikit-learn's with one start and ours with the best of three.")
