"""The first two guides' claims, switch by switch, on redline: each alone against the guide's starting point, same clips."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/speech"))
import jobs  # noqa: E402


def settings(batch, workers, *more):
    return [f"model.train_ds.batch_size={batch}", f"model.train_ds.num_workers={workers}", *more]


def workload(env):
    def run(*overrides):
        plain = [] if any("num_buckets" in word for word in overrides) else ["model.train_ds.num_buckets=1"]
        return jobs.redline(env, *plain, *overrides)

    validated = [f"model.validation_ds.manifest_filepath={jobs.clips(env) / 'validation_manifest.json'}", "trainer.limit_val_batches=1.0"]
    tars = jobs.tars(env)
    variants = {
        "slow": run(*settings(2, 0)),
        "batch_8": run(*settings(8, 0)),
        "batch_16": run(*settings(16, 0)),
        "workers_2": run(*settings(2, 2)),
        "workers_4": run(*settings(2, 4)),
        "fp16": run(*settings(8, 0), "trainer.precision=16-mixed"),
        "bf16": run(*settings(8, 0), "trainer.precision=bf16-mixed"),
        "tar": run(*settings(2, 0), "model.train_ds.is_tarred=true", f"model.train_ds.tarred_audio_filepaths={tars}/audio_{{0..1}}.tar",
                   f"model.train_ds.manifest_filepath={tars}/tarred_audio_manifest.json"),
        "log_50": run(*settings(2, 0), "trainer.log_every_n_steps=50"),
        "validated_twice": run(*settings(2, 0), *validated, "trainer.val_check_interval=12"),
        "validated_once": run(*settings(2, 0), *validated, "trainer.val_check_interval=24"),
        "no_dither": run(*settings(8, 0), "model.preprocessor.dither=0"),
        "cached": run(*settings(8, 0), "model.preprocessor.dither=0", "model.cache_features=true", "model.train_ds.cache=memory"),
        "all": run(*settings(8, 1), "model.train_ds.num_buckets=4", "trainer.log_every_n_steps=50"),
        "one_call": [env.build / "bench/speech_preprocess_bench", 1],
        "two_calls": [env.build / "bench/speech_preprocess_bench", 2],
    }

    def claim(name, variant, reference="slow", sentence=""):
        return Bar("samples_per_second", variant, reference, claim=name, sentence=sentence)

    return Workload(
        "guides_speech", "Each of the guides' switches alone, mostly against batch 2, no workers, fp32, no buckets.", variants,
        [claim("batch_2_to_8", "batch_8"), claim("batch_8_to_16", "batch_16", "batch_8"), claim("workers_0_to_4", "workers_4"),
         claim("workers_0_to_2", "workers_2"), claim("precision_16_mixed", "fp16", "batch_8", "resolved to the fastest precision of this machine"),
         claim("precision_bf16_mixed", "bf16", "batch_8"), claim("tar", "tar"), claim("log_10_to_50", "log_50"),
         claim("validation", "validated_once", "validated_twice", "every epoch instead of twice in one"),
         claim("cache_features", "cached", "no_dither", "clean features from the cache"), claim("all", "all"),
         Bar("preprocess_ms", "one_call", "two_calls", smaller_is_better=True, claim="one_preprocessor_call", sentence="both signals in one call")])
