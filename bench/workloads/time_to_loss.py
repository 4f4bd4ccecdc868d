"""Larger batches: predicted goodput against the measured time to the reference's held-out loss, on both tasks."""
import sys

from frame import ROOT, Bar, Workload

sys.path.insert(0, str(ROOT / "bench/tuner"))
import time_to_loss as campaign  # noqa: E402


def workload(env):
    def run():
        found = campaign.campaign(env.redline, env.work / "time_to_loss")
        result.notes = "\n".join(campaign.table(found))
        return campaign.figures(found)

    result = Workload(
        name="time_to_loss",
        sentence="Batch x 2, 4 and 8 with all that follows it, five paired seeds each: speed from interleaved blocks times what a sample is worth (the candidate's last held-out loss on the line of the "
                 "reference's after half and after all of the samples, whole schedules each), against what its gradients' noise predicts; then the tuner's own batch, where it keeps one, from other seeds.",
        variants={"redline": run},
        bars=[Bar("prediction_error_percent", "redline", "redline", smaller_is_better=True, at_most=15, sentence="median error of the predicted time to the loss"),
              Bar("kept_below_one", "redline", "redline", smaller_is_better=True, at_most=0, sentence="batches that the tuner keeps and that take longer")],
        rounds=1,
    )
    return result
