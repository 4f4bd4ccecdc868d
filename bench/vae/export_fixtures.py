"""export_fixtures.py OUT_DIR: weights, one batch and what the PyTorch peer makes of them, for `redline probe`.

Writes OUT_DIR/vae_transformer and OUT_DIR/vae_lstm with weights, batch and expected (outputs and gradients of the first step, and the
losses of five AdamW steps). Dropout is off: the two programs draw different masks. Run in the peers' environment.
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file

from peer_model import SequenceVae

SIZES = {
    "transformer": dict(vocab_size=50, d_model=32, heads=4, layers=2, hidden=64, latent=8, dropout=0.0, max_length=40),
    "lstm": dict(vocab_size=40, latent=4, embed=16, lstm_hidden=24, dropout_in=0.0, dropout_out=0.0),
}
YAML = {
    "transformer": """  architecture: transformer
  vocab_size: 50
  d_model: 32
  n_heads: 4
  d_ff: 64
  n_encoder_layers: 2
  n_decoder_layers: 2
  latent_dim: 8
  dropout: 0.0
  max_sequence_length: 40
""",
    "lstm": """  architecture: lstm
  vocab_size: 40
  latent_dim: 4
  max_sequence_length: 40
  lstm: {embed_dim: 16, encoder_hidden: 24, decoder_hidden: 24, dropout_in: 0.0, dropout_out: 0.0}
""",
}


def batch_of(sizes):
    lengths = torch.tensor([12, 3, 29, 17])
    tokens = torch.zeros(len(lengths), int(lengths.max()), dtype=torch.int64)
    for b, n in enumerate(lengths.tolist()):
        tokens[b, :n] = torch.randint(3, sizes["vocab_size"], (n,))
        tokens[b, 0], tokens[b, n - 1] = 1, 2
    return {"tokens": tokens, "lengths": lengths, "noise": torch.randn(len(lengths), sizes["latent"])}


def export(kind, folder):
    torch.manual_seed(20261115)
    model = SequenceVae(kind, **SIZES[kind])
    if kind == "lstm":  # the reference's U(-0.01, 0.01) leaves gradients too small to compare
        for p in model.parameters():
            torch.nn.init.uniform_(p, -0.3, 0.3)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous().clone() for k, v in model.state_dict().items()}, folder / "weights.safetensors")
    batch = batch_of(SIZES[kind])
    save_file(batch, folder / "batch.safetensors")
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01)
    expected, losses = {}, []
    for step in range(5):
        optimiser.zero_grad()
        out = model(batch["tokens"], batch["lengths"], batch["noise"])
        out["loss"].backward()
        losses.append(out["loss"].item())
        if step == 0:
            expected = {k: v.detach().clone() for k, v in out.items()}
            expected |= {"grad." + name: p.grad.clone() for name, p in model.named_parameters()}
        optimiser.step()
    expected["losses"] = torch.tensor(losses, dtype=torch.float64)
    save_file({k: v.contiguous() for k, v in expected.items()}, folder / "expected.safetensors")
    (folder / "config.yaml").write_text(
        "task: sequence_vae\nmodel:\n" + YAML[kind] +
        "  optim: {name: adamw, lr: 1.0e-3, betas: [0.9, 0.98], weight_decay: 0.01}\ntrainer: {precision: 32-true}\n")
    print(folder, "losses", [round(x, 5) for x in losses], "parameters", sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for kind in SIZES:
        export(kind, pathlib.Path(sys.argv[1]) / f"vae_{kind}")
