"""Where a step's time goes, by part of the model, as a page for bench/results.

    perf record -g -o step.perf -F 997 build/bench/speech_step_bench 4 8 8 1 1
    profile_page.py step.perf > bench/results/<date>_speech_profile.md

Groups the samples of `perf report` by symbol. Spinning at OpenMP barriers is shown by itself: it is the time one thread waits for the other.
"""
import datetime
import re
import subprocess
import sys

GROUPS = [
    ("matrix products (BLAS kernels)", r"sgemm_kernel|gemm_kernel|jit_avx.*gemm|brgemm"),
    ("matrix products: packing and scaling of operands", r"sgemm_scopy|sgemm_mscale|gemm.*copy|sgemm|cblas"),
    ("sub-sampling: stem and depthwise forward", r"stem_row|weighted_sum_of_nine|gather_input|bias_relu"),
    ("sub-sampling: backward", r"gated_sum|add_products|stem_taps|add_column_sums|relu_backward|depthwise_row"),
    ("conformer rows (LayerNorm, swish, GLU, softmax, BatchNorm, depthwise)", r"rows::"),
    ("random numbers (dropout, dither)", r"philox|normal_group|normal_run|keyed"),
    ("mel features", r"mel_detail|MelKernel|normalise_per_feature"),
    ("tokens", r"quantizer_detail|nearest_code"),
    ("waiting at barriers", r"gomp|^\[\.\] 0x"),
    ("memory (page faults, copies, allocation)", r"memset|memmove|memcpy|page_fault|clear_page|malloc|_int_free|rmqueue|mas_|handle_mm"),
    ("other LibTorch operators", r"at::|c10::|torch::"),
]


def samples(path):
    done = subprocess.run(["perf", "report", "-i", path, "--no-children", "-g", "none", "--stdio"], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        found = re.match(r"\s+([\d.]+)%\s+(\S+)\s+(\S+)\s+(.*)", line)
        if found:
            yield float(found[1]), f"{found[4]} {found[3]}", found[4]


def main():
    totals, named = {name: 0.0 for name, _ in GROUPS} | {"rest (mostly the kernel, and the program's start)": 0.0}, []
    for share, text, symbol in samples(sys.argv[1]):
        name = next((group for group, pattern in GROUPS if re.search(pattern, text)), list(totals)[-1])
        totals[name] += share
        named.append((share, symbol))
    print(f"# speech_profile, {datetime.date.today().isoformat()}\n")
    print("Samples of `perf` over `bench/speech_step_bench` (forward + backward, 8 × 8 s, d_model 176, 4 layers, 1024 classes), by part.\n")
    print("| part | share of all samples |\n|---|---|")
    for name, share in sorted(totals.items(), key=lambda item: -item[1]):
        print(f"| {name} | {share:.1f} % |")
    print("\nThe largest symbols:\n\n| symbol | share |\n|---|---|")
    for share, symbol in named[:16]:
        print(f"| `{symbol[4:] if symbol.startswith('[') else symbol}` | {share:.1f} % |"[:160])


main()
