"""make_tables.py FOLDER [SHARE]: nuScenes tables of the size of v1.0-trainval (2.6 million rows of sample_data at SHARE 1), without pictures, in
nuScenes' own layout (one field a line). For measuring how fast they load."""
import hashlib
import pathlib
import sys

folder, share = pathlib.Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
SCENES, FRAMES, SWEEPS, ANNOTATIONS = 850, 40, 77, 34  # 34,000 samples; sensor rows and boxes of each
CHANNELS = ["CAM_FRONT_LEFT", "CAM_FRONT", "CAM_FRONT_RIGHT", "CAM_BACK_LEFT", "CAM_BACK", "CAM_BACK_RIGHT", "LIDAR_TOP",
            "RADAR_FRONT", "RADAR_FRONT_LEFT", "RADAR_FRONT_RIGHT", "RADAR_BACK_LEFT", "RADAR_BACK_RIGHT"]


def token(*what):
    return hashlib.md5(repr(what).encode()).hexdigest()


class Table:
    def __init__(self, name):
        self.file, self.first = open(folder / f"{name}.json", "w", buffering=1 << 22), True
        self.file.write("[\n")

    def row(self, text):
        self.file.write(text if self.first else ",\n" + text)
        self.first = False

    def close(self):
        self.file.write("\n]")
        self.file.close()


def fields(**values):
    import json
    return json.dumps(values, indent=0)


BEFORE, AFTER, ATTRIBUTE = [token(d, 1) for d in range(SWEEPS)], [token(d, 2) for d in range(SWEEPS)], token("a")
folder.mkdir(parents=True, exist_ok=True)
t = {n: Table(n) for n in ("scene sample sensor calibrated_sensor sample_data ego_pose category instance sample_annotation log map attribute visibility").split()}
t["log"].row(fields(token=token("log"), logfile="generated", vehicle="n008", date_captured="2018-08-01", location="boston-seaport"))
t["map"].row(fields(token=token("map"), log_tokens=[token("log")], category="semantic_prior", filename=""))
t["attribute"].row(fields(token=token("a"), name="vehicle.moving", description=""))
t["visibility"].row(fields(token="4", level="v80-100", description=""))
for i, name in enumerate(["vehicle.car", "vehicle.truck", "human.pedestrian.adult", "movable_object.barrier"]):
    t["category"].row(fields(token=token("c", i), name=name, description="", index=i))
for channel in CHANNELS:
    t["sensor"].row(fields(token=token(channel), channel=channel, modality="camera" if channel.startswith("CAM") else "lidar"))
splits = __import__("nuscenes.utils.splits", fromlist=["train"])
names = (splits.train + splits.val)[:max(1, int(SCENES * share))]
for s, scene in enumerate(names):
    t["scene"].row(fields(token=token(scene), log_token=token("log"), nbr_samples=FRAMES, first_sample_token=token(s, 0), last_sample_token=token(s, FRAMES - 1), name=scene, description="generated"))
    for channel in CHANNELS:
        camera = channel.startswith("CAM")
        t["calibrated_sensor"].row(fields(token=token(s, channel), sensor_token=token(channel), translation=[1.7, 0.01, 1.5], rotation=[0.5, -0.5, 0.5, -0.5],
                                          camera_intrinsic=[[1266.417203046554, 0.0, 816.2670197447984], [0.0, 1266.417203046554, 491.50706579294757], [0.0, 0.0, 1.0]] if camera else []))
    for i in range(ANNOTATIONS):
        t["instance"].row(fields(token=token(s, "i", i), category_token=token("c", i % 4), nbr_annotations=FRAMES, first_annotation_token=token(s, 0, "n", i), last_annotation_token=token(s, FRAMES - 1, "n", i)))
    of_channel = {channel: token(s, channel) for channel in CHANNELS}
    instances = [token(s, "i", i) for i in range(ANNOTATIONS)]
    boxes = [[token(s, f, "n", i) for i in range(ANNOTATIONS)] for f in range(FRAMES)]
    for f in range(FRAMES):
        sample, time = token(s, f), 1530000000000000 + (s * FRAMES + f) * 500000
        t["sample"].row(fields(token=sample, timestamp=time, prev=token(s, f - 1) if f else "", next=token(s, f + 1) if f + 1 < FRAMES else "", scene_token=token(scene)))
        data, poses, found = [], [], []
        for d in range(SWEEPS):
            channel, key = CHANNELS[d % len(CHANNELS)], d < len(CHANNELS)
            row, camera, where = hashlib.md5(b"%d %d %d" % (s, f, d)).hexdigest(), d % len(CHANNELS) < 6, "samples" if key else "sweeps"
            data.append(f'{{\n"token": "{row}",\n"sample_token": "{sample}",\n"ego_pose_token": "{row}",\n"calibrated_sensor_token": "{of_channel[channel]}",\n"timestamp": {time + d},\n'
                        f'"fileformat": "jpg",\n"is_key_frame": {"true" if key else "false"},\n"height": {900 if camera else 0},\n"width": {1600 if camera else 0},\n'
                        f'"filename": "{where}/{channel}/n008-2018-08-01-15-16-36-0400__{channel}__{time + d}.jpg",\n"prev": "{BEFORE[d]}",\n"next": "{AFTER[d]}"\n}}')
            poses.append(f'{{\n"token": "{row}",\n"timestamp": {time + d},\n"rotation": [\n0.5720320396729045,\n-0.0016977771610471074,\n0.011798001930183783,\n-0.8201446642457809\n],\n'
                         f'"translation": [\n411.3039349319818,\n1180.8903791765097,\n0.0\n]\n}}')
        for i in range(ANNOTATIONS):
            found.append(f'{{\n"token": "{boxes[f][i]}",\n"sample_token": "{sample}",\n"instance_token": "{instances[i]}",\n"visibility_token": "4",\n"attribute_tokens": [\n"{ATTRIBUTE}"\n],\n'
                         f'"translation": [\n{373.256 + i},\n1130.419,\n0.8\n],\n"size": [\n0.621,\n0.669,\n1.642\n],\n"rotation": [\n0.9831098797903927,\n0.0,\n0.0,\n-0.18301629506281616\n],\n'
                         f'"prev": "{boxes[f - 1][i] if f else ""}",\n"next": "{boxes[f + 1][i] if f + 1 < FRAMES else ""}",\n"num_lidar_pts": 1,\n"num_radar_pts": 0\n}}')
        t["sample_data"].row(",\n".join(data))
        t["ego_pose"].row(",\n".join(poses))
        t["sample_annotation"].row(",\n".join(found))
for table in t.values():
    table.close()
