"""The same metrics with scikit-learn: silhouette, Davies-Bouldin, Calinski-Harabasz, recall@k by its nearest neighbours, NMI with
its k-means. `map` adds mAP@R by its neighbours too, which needs as many of them as the largest class has. Usage: FILE [map]"""
import json
import resource
import sys
import time

import numpy as np
from safetensors.numpy import load_file
from sklearn import cluster, metrics, neighbors

given = load_file(sys.argv[1])
vectors, labels = given["embeddings"], given["labels"]


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def neighbour_metrics(with_map):
    size = int(np.bincount(labels).max()) - 1 if with_map else 8
    index = neighbors.NearestNeighbors(n_neighbors=size, algorithm="brute").fit(vectors)
    found = labels[index.kneighbors(return_distance=False)] == labels[:, None]
    out = {f"recall_at_{k}": float(found[:, :k].any(1).mean()) for k in (1, 2, 4, 8)}
    if with_map:
        relevant = np.bincount(labels)[labels] - 1
        within = found & (np.arange(found.shape[1]) < relevant[:, None])
        precision = within.cumsum(1) / np.arange(1, found.shape[1] + 1)
        out["map_at_r"] = float(((precision * within).sum(1) / relevant).mean())
    return out


before, begin = peak(), time.perf_counter()
out = {"silhouette": float(metrics.silhouette_score(vectors, labels)), "davies_bouldin": float(metrics.davies_bouldin_score(vectors, labels)),
       "calinski_harabasz": float(metrics.calinski_harabasz_score(vectors, labels))}
out |= neighbour_metrics(len(sys.argv) > 2)
clusters = cluster.KMeans(len(np.unique(labels)), random_state=0).fit_predict(vectors)
out["nmi"] = float(metrics.normalized_mutual_info_score(labels, clusters))
out |= {"seconds": time.perf_counter() - begin, "peak_rss_bytes": peak(), "grown_bytes": peak() - before}
print(json.dumps(out))
