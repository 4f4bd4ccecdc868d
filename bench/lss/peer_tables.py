"""peer_tables.py FOLDER: loads nuScenes tables with nuscenes-devkit and prints seconds and the growth of the process."""
import json
import resource
import sys
import time

from nuscenes.nuscenes import NuScenes

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begin = time.perf_counter()
tables = NuScenes(version="v1.0-trainval", dataroot=sys.argv[1], verbose=False)
print(json.dumps({"load_seconds": time.perf_counter() - begin, "mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, "rows": len(tables.sample_data)}))
