"""`redline machine`: a table with words for a person, a versioned object for a program, clear words for a wrong path."""
import json
import os
import pathlib
import subprocess

REDLINE = os.environ.get("REDLINE", str(pathlib.Path(__file__).resolve().parents[2] / "build/redline"))


def run(*words):
    return subprocess.run([REDLINE, "machine", *words], capture_output=True, text=True)


def test_json_has_facts_rates_and_words(tmp_path):
    answer = run("--quick", "--json", "--path", str(tmp_path))
    assert answer.returncode == 0, answer.stderr
    facts = json.loads(answer.stdout)
    assert facts["schema_version"] == 1
    assert 1 <= facts["allowed_cpus"] <= facts["logical_cpus"]
    assert facts["allowed_cpus"] <= len(os.sched_getaffinity(0))
    total = int(next(line.split()[1] for line in open("/proc/meminfo") if line.startswith("MemTotal"))) * 1024
    assert facts["memory_bytes"] == total
    assert facts["gemm_fp32_gflops"] > 0 and facts["memory_gb_per_second"] > 0 and facts["elementwise_g_per_second"] > 0
    assert facts["disk"]["path"] == str(tmp_path) and facts["disk"]["read_gb_per_second"] > 0
    flags = next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "").split()
    if flags:
        assert facts["avx2"] == ("avx2" in flags)
        assert facts["avx512_bf16"] == ("avx512_bf16" in flags)
        assert facts["amx_bf16"] == ("amx_bf16" in flags)
    words = " ".join(facts["words"])
    quiet = facts["measuring_cpu_share"] >= 0.8
    assert quiet or "busy" in words
    slower = quiet and facts["gemm_bf16_gflops"] < facts["gemm_fp32_gflops"] / 1.1 and facts["conv_bf16_gflops"] < facts["conv_fp32_gflops"]
    assert ("bf16 is" in words and "slower than fp32 here" in words) or not slower
    assert list(tmp_path.iterdir()) == [], "measuring leaves nothing behind"


def test_table_is_plain_text_with_words():
    answer = run("--quick")
    assert answer.returncode == 0, answer.stderr
    for part in ("CPU", "cores", "matrix product", "convolution", "In words"):
        assert part in answer.stdout
    assert "\x1b" not in answer.stdout


def test_a_wrong_path_is_a_data_error_and_one_sentence():
    answer = run("--quick", "--path", "/no/such\x1bpath")
    assert answer.returncode == 3
    assert answer.stdout == ""
    assert "--path" in answer.stderr and "\x1b" not in answer.stderr
