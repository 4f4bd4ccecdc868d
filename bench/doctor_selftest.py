"""The test of the doctor's stopwatch as a workload (whether a delay inside a timed scope is named, against a twin without it; not whether a
diagnosis is right: doctor_outside.py): accuracy on injected delays, false alarms, error of the predicted gain; the matrix beside them."""
import json
import subprocess

from frame import Bar, Workload

ORDER = ["read", "decode", "transform", "collate", "copy", "forward", "backward", "optimiser", "log", "monitor", "validate", "checkpoint"]


def matrix_table(result):
    named = [name for name in ORDER + ["both", "nothing"] if any(name in row for row in result["matrix"].values())]
    named += sorted({name for row in result["matrix"].values() for name in row} - set(named))
    lines = ["| injected \\ named first | " + " | ".join(named) + " |", "|---|" + "---|" * len(named)]
    for injected in [name for name in ORDER + ["double fault", "control"] if name in result["matrix"]]:
        row = result["matrix"][injected]
        lines.append(f"| {injected} | " + " | ".join(str(row.get(name, "")) for name in named) + " |")
    return "\n".join(lines)


def wrong_list(result):
    wrong = [f"- {' + '.join(a['injected']) or 'control'} {100 * a['share']:.0f} % {a['kind']}: named {', '.join(a['named']) or 'nothing'}"
             for a in result["answers"] if not a["right"]]
    return "\n".join(["Wrong answers:", ""] + wrong) if wrong else "No wrong answer."


def selftest_workload(env, name, task, words):
    command = [env.redline, "doctor", *words, "--selftest", "--block-steps", "14", "--json"]
    load = Workload(name=name, sentence=f"The stopwatch against delays injected into {task}", variants={}, bars=[
        Bar("wrong_share", "redline", "redline", smaller_is_better=True, at_most=0.05, sentence="of the faults are named wrong"),
        Bar("false_alarm_rate", "redline", "redline", smaller_is_better=True, at_most=0.05, sentence="of the controls"),
        Bar("median_gain_error", "redline", "redline", smaller_is_better=True, at_most=0.10, sentence="predicted against measured gain of removing the fault"),
    ], rounds=1)

    def run():
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1800)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-2000:])
        result = json.loads(done.stdout)
        shown = " ".join(str(word).replace(str(env.redline), "redline").replace(str(env.redline.parent), "build") for word in command)
        load.notes = "\n\n".join([f"{result['injections']} faults, {result['controls']} controls: `{shown}`", matrix_table(result), wrong_list(result)])
        kept = {key: result[key] for key in ("accuracy", "injections", "controls", "false_alarm_rate", "median_gain_error", "step_seconds", "seconds")}
        return {**kept, "wrong_share": 1 - result["accuracy"], "matrix": result["matrix"], "answers": result["answers"]}

    load.variants["redline"] = run
    return load
