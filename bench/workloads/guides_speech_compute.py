"""The first two guides' claims on what the processor does: batch, precision, features; each alone on redline, same clips."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/speech"))
import jobs  # noqa: E402


def workload(env):
    variants = {
        "slow": jobs.switches(env, 2, 0),
        "batch_8": jobs.switches(env, 8, 0),
        "batch_16": jobs.switches(env, 16, 0),
        "fp16": jobs.switches(env, 8, 0, "trainer.precision=16-mixed"),
        "bf16": jobs.switches(env, 8, 0, "trainer.precision=bf16-mixed"),
        "no_dither": jobs.switches(env, 8, 0, "model.preprocessor.dither=0"),
        "cached": jobs.switches(env, 8, 0, "model.preprocessor.dither=0", "model.cache_features=true", "model.train_ds.cache=memory"),
        "all": jobs.switches(env, 8, 4, "trainer.precision=16-mixed", "trainer.log_every_n_steps=50"),
        "one_call": [env.build / "bench/speech_preprocess_bench", 1],
        "two_calls": [env.build / "bench/speech_preprocess_bench", 2],
    }

    def claim(name, variant, reference="slow", sentence=""):
        return Bar("samples_per_second", variant, reference, claim=name, sentence=sentence)

    return Workload(
        "guides_speech_compute", "The guides' switches of batch, precision and features, each alone; \"slow\" is batch 2, no workers, fp32, no buckets.", variants,
        [claim("batch_2_to_8", "batch_8"), claim("batch_8_to_16", "batch_16", "batch_8"),
         claim("precision_16_mixed", "fp16", "batch_8", "resolved to the fastest precision of this machine"),
         claim("precision_bf16_mixed", "bf16", "batch_8"), claim("cache_features", "cached", "no_dither", "clean features from the cache"),
         claim("all", "all", sentence="the guide's fast recipe: batch 8, 16-mixed, 4 workers, log 50"),
         Bar("preprocess_ms", "one_call", "two_calls", smaller_is_better=True, claim="one_preprocessor_call", sentence="both signals in one call")])
