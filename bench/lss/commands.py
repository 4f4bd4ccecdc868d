"""Generated scenes for Lift-Splat-Shoot's benchmarks and the commands both sides run on them."""
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SMALL = ["model.grid.xbound=[-48,48,2]", "model.grid.ybound=[-48,48,2]", "model.grid.dbound=[4,44,5]", "model.image_size=[64,192]", "model.cam_channels=16",
         "model.neck_channels=64", "model.backbone.embed_dim=24", "model.backbone.depths=[1,1,2,1]", "model.backbone.num_heads=[1,2,4,8]",
         "model.backbone.drop_path_rate=0", "model.nuscenes.resize_lim=[0.10527,0.12273]"]


def scenes(env, count=48):
    """Six pictures of 1600 x 900 a sample, as nuScenes has them."""
    folder = env.work / f"nuscenes_scenes_{count}"
    if not folder.exists():
        temporary = folder.with_name(folder.name + ".part")
        subprocess.run([str(env.redline), "data", "synth", "nuscenes", "--out", str(temporary), "--num", str(count), "--num_validation", "8", "--seed", "1"],
                       check=True, stdout=sys.stderr)
        temporary.rename(folder)
    return folder


def redline(env, size, steps, warm_up, *words, batch=2):
    sizes = SMALL if size == "small" else ["model.backbone.drop_path_rate=0.2"]
    return [sys.executable, HERE / "redline_train.py", env.redline, scenes(env), steps, warm_up, *sizes, f"model.train_ds.batch_size={batch}", *words]


def recipe(env, name, steps, warm_up, *words):
    """One of the recipes as it is, on the same scenes."""
    return [sys.executable, HERE / "redline_train.py", env.redline, scenes(env), steps, warm_up, *words, f"--recipe={name}"]


def peer(env, size, steps, warm_up, workers, batch=2):
    return [env.peers_python, HERE / "peer_train.py", size, scenes(env), workers, batch, steps, warm_up]
