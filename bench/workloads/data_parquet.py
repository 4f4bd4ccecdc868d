"""Parquet sequences, batch 16, padded, handed over one batch at a time, against PyTorch's DataLoader with zero-copy rows."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/data"))
import prepare  # noqa: E402


def workload(env):
    folder = prepare.trained_on(env, "sequences", prepare.sequences(env, 2_000_000, "sequences"))
    small = prepare.trained_on(env, "sequences", prepare.sequences(env, 20_000, "sequences_small"))
    keys = "batch_size: 16\nshuffle: true\ncolumns: [tokens]\nmax_buffer_bytes: 4GiB\n"
    variants = {f"redline_{w}": prepare.redline(env, f"data_parquet_{w}", f"path: {folder}\n{keys}", "parquet", w) for w in (0, 1)}
    variants |= {f"torch_{w}": prepare.peer(env, "torch_parquet.py", folder, "tokens", w, 16) for w in (0, 2)}
    variants |= {f"small_redline_{w}": prepare.redline(env, f"data_parquet_small_{w}", f"path: {small}\n{keys}", "parquet", w) for w in (0, 1)}
    variants |= {f"small_torch_{w}": prepare.peer(env, "torch_parquet.py", small, "tokens", w, 16) for w in (0, 2)}
    return Workload(
        "data_parquet", "2,000,000 integer sequences of median length 90, batch 16; 20,000 rows beside it.", variants,
        [Bar("samples_per_second", "redline_1", "torch_0|torch_2", 8.0),
         Bar("samples_per_second", "small_redline_1", "small_torch_0|small_torch_2", 8.0, sentence="20,000 rows"),
         Bar("peak_pss_bytes", "redline_1", "torch_0|torch_2", 2.0, smaller_is_better=True, chosen_by="samples_per_second",
             sentence="peak PSS of the process tree, the peer with its fastest worker count"),
         Bar("first_batch_seconds", "redline_1", "torch_0|torch_2", 2.0, smaller_is_better=True, sentence="from loader construction")])
