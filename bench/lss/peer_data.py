"""The PyTorch peer's data path: lift-splat-shoot's (nv-tlabs) as a practitioner runs it: nuscenes-devkit's tables, six JPEG pictures opened with Pillow,
its resize, crop, flip and rotation with their matrices, ImageNet normalisation, vehicle boxes drawn with OpenCV; a DataLoader over it.

    peer_data.py FOLDER WORKERS BATCH SECONDS [HEIGHT WIDTH]: prints samples per second as JSON."""
import pathlib
import sys

import cv2
import numpy
import torch
from nuscenes.nuscenes import NuScenes
from nuscenes.utils.data_classes import Box
from nuscenes.utils.splits import create_splits_scenes
from PIL import Image
from pyquaternion import Quaternion

CAMERAS = ["CAM_FRONT_LEFT", "CAM_FRONT", "CAM_FRONT_RIGHT", "CAM_BACK_LEFT", "CAM_BACK", "CAM_BACK_RIGHT"]
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def picture(image, resize, size, crop, flip, degrees):
    """The picture as it is trained on, and the matrix and shift that say where its pixels went."""
    image = image.resize(size).crop(crop)
    if flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    image = image.rotate(degrees)
    turn, move = torch.eye(2) * resize, -torch.tensor(crop[:2], dtype=torch.float32)
    if flip:
        mirror = torch.tensor([[-1.0, 0.0], [0.0, 1.0]])
        turn, move = mirror @ turn, mirror @ move + torch.tensor([crop[2] - crop[0], 0.0])
    angle = degrees / 180 * numpy.pi
    about = torch.tensor([[numpy.cos(angle), numpy.sin(angle)], [-numpy.sin(angle), numpy.cos(angle)]], dtype=torch.float32)
    middle = torch.tensor([crop[2] - crop[0], crop[3] - crop[1]], dtype=torch.float32) / 2
    turn, move = about @ turn, about @ move + about @ -middle + middle
    matrix, shift = torch.eye(3), torch.zeros(3)
    matrix[:2, :2], shift[:2] = turn, move
    pixels = torch.from_numpy(numpy.array(image)).permute(2, 0, 1).contiguous().float().div(255)
    return (pixels - MEAN) / STD, matrix, shift


class Scenes(torch.utils.data.Dataset):
    def __init__(self, folder, height=128, width=352, bounds=(-50.0, 50.0, 0.5), cameras=5, resize=(0.193, 0.225), version="v1.0-mini", split="mini_train"):
        self.tables = NuScenes(version=version, dataroot=str(folder), verbose=False)
        self.folder, self.size, self.cameras, self.resize = pathlib.Path(folder), (height, width), cameras, resize
        low, high, step = bounds
        self.cells, self.first, self.step = int((high - low) / step), low + step / 2, step
        names = set(create_splits_scenes()[split])
        self.samples = [s for s in self.tables.sample if self.tables.get("scene", s["scene_token"])["name"] in names]
        self.samples.sort(key=lambda s: (s["scene_token"], s["timestamp"]))

    def __len__(self):
        return len(self.samples)

    def drawn(self, stored_height, stored_width):
        height, width = self.size
        resize = numpy.random.uniform(*self.resize)
        size = (int(stored_width * resize), int(stored_height * resize))
        top = int((1 - numpy.random.uniform(0.0, 0.22)) * size[1]) - height
        left = int(numpy.random.uniform(0, max(0, size[0] - width)))
        return resize, size, (left, top, left + width, top + height), bool(numpy.random.choice([0, 1])), numpy.random.uniform(-5.4, 5.4)

    def label(self, sample):
        pose = self.tables.get("ego_pose", self.tables.get("sample_data", sample["data"]["LIDAR_TOP"])["ego_pose_token"])
        away, back = -numpy.array(pose["translation"]), Quaternion(pose["rotation"]).inverse
        grid = numpy.zeros((self.cells, self.cells))
        for token in sample["anns"]:
            found = self.tables.get("sample_annotation", token)
            if found["category_name"].split(".")[0] != "vehicle":
                continue
            box = Box(found["translation"], found["size"], Quaternion(found["rotation"]))
            box.translate(away)
            box.rotate(back)
            corners = numpy.round((box.bottom_corners()[:2].T - self.first + self.step / 2) / self.step).astype(numpy.int32)
            cv2.fillPoly(grid, [corners[:, [1, 0]]], 1.0)
        return torch.Tensor(grid).unsqueeze(0)

    def __getitem__(self, index):
        sample = self.samples[index]
        chosen = numpy.random.choice(CAMERAS, self.cameras, replace=False) if self.cameras < 6 else CAMERAS
        fields = [[] for _ in range(6)]
        for camera in chosen:
            data = self.tables.get("sample_data", sample["data"][camera])
            image = Image.open(self.folder / data["filename"])
            sensor = self.tables.get("calibrated_sensor", data["calibrated_sensor_token"])
            pixels, matrix, shift = picture(image, *self.drawn(image.height, image.width))
            for field, value in zip(fields, (pixels, torch.Tensor(Quaternion(sensor["rotation"]).rotation_matrix), torch.Tensor(sensor["translation"]),
                                             torch.Tensor(sensor["camera_intrinsic"]), matrix, shift)):
                field.append(value)
        return (*(torch.stack(field) for field in fields), self.label(sample))


def seeded(worker):
    numpy.random.seed(13 + worker)


def loader(data, workers, batch):
    extra = {"persistent_workers": True, "prefetch_factor": 2} if workers else {}
    return torch.utils.data.DataLoader(data, batch_size=batch, shuffle=True, num_workers=workers, drop_last=True, worker_init_fn=seeded, **extra)


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "data"))
    import peer_clock
    folder, workers, batch, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    if workers:
        torch.set_num_threads(1)
    # All six pictures of a sample are opened, so that both sides decode as many.
    peer_clock.run(lambda: loader(Scenes(folder, cameras=6), workers, batch), lambda got: got[0].shape[0], seconds)
