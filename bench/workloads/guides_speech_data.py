"""The first two guides' claims on data and cadences: workers, tars, logging, validation; each alone on redline, same clips."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/speech"))
import jobs  # noqa: E402


def workload(env):
    validated = [f"model.validation_ds.manifest_filepath={jobs.clips(env) / 'validation_manifest.json'}", "trainer.limit_val_batches=1.0"]
    tars, steps = jobs.tars(env), jobs.SWITCH_TURN // 2
    variants = {
        "slow": jobs.switches(env, 2, 0),
        "workers_2": jobs.switches(env, 2, 2),
        "workers_4": jobs.switches(env, 2, 4),
        "tar": jobs.switches(env, 2, 0, "model.train_ds.is_tarred=true", f"model.train_ds.tarred_audio_filepaths={tars}/audio_{{0..1}}.tar",
                             f"model.train_ds.manifest_filepath={tars}/tarred_audio_manifest.json"),
        "log_50": jobs.switches(env, 2, 0, "trainer.log_every_n_steps=50"),
        "validated_twice": jobs.switches(env, 2, 0, *validated, f"trainer.val_check_interval={steps // 2}"),
        "validated_once": jobs.switches(env, 2, 0, *validated, f"trainer.val_check_interval={steps}"),
    }

    def claim(name, variant, reference="slow", sentence=""):
        return Bar("samples_per_second", variant, reference, claim=name, sentence=sentence)

    return Workload(
        "guides_speech_data", "The guides' switches of loading and cadences, each alone against batch 2, no workers, fp32, no buckets.", variants,
        [claim("workers_0_to_4", "workers_4"), claim("workers_0_to_2", "workers_2"), claim("tar", "tar"), claim("log_10_to_50", "log_50"),
         claim("validation", "validated_once", "validated_twice", f"after {steps} steps instead of {steps // 2}")])
