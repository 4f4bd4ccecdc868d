"""NeMo's NEST training step (forward + backward) at a fixed shape, as the peer of bench/speech_step_bench.

Serves rounds on stdin/stdout so that run_step.py can interleave it with redline in one session: a line "N" runs N steps and
answers with their times in milliseconds as JSON. Both sides read the same audio: a seeded linear congruential noise, no file.
Run inside the peers' environment (NeMo 3.0.0, torch 2.13.0).
"""
import argparse
import json
import logging
import os
import resource
import sys
import time
import warnings

os.environ.setdefault("HYDRA_FULL_ERROR", "0")
warnings.filterwarnings("ignore")
real_stdout = os.dup(1)
os.dup2(2, 1)  # NeMo prints on import; answers go to the real stdout

import numpy as np  # noqa: E402
import torch  # noqa: E402


def model_config(args):
    target = "nemo.collections.asr."
    return {
        "sample_rate": 16000, "num_classes": args.classes, "num_books": args.books, "code_dim": 16, "squeeze_single": False,
        "mask_position": "pre_conv", "train_ds": None, "validation_ds": None,
        "preprocessor": {"_target_": target + "modules.AudioToMelSpectrogramPreprocessor", "sample_rate": 16000,
                         "normalize": "per_feature", "window_size": 0.025, "window_stride": 0.01, "window": "hann",
                         "features": 80, "n_fft": 512, "log": True, "frame_splicing": 1, "dither": 1e-5, "pad_to": 16,
                         "pad_value": 0.0},
        "spec_augment": {"_target_": target + "modules.SpectrogramAugmentation", "freq_masks": 0, "time_masks": 0,
                         "freq_width": 27, "time_width": 0.05},
        "masking": {"_target_": target + "modules.RandomBlockMasking", "block_size": 40, "mask_prob": 0.01, "feat_in": 80,
                    "freeze": True, "allow_overlap": True},
        "quantizer": {"_target_": target + "modules.RandomProjectionVectorQuantizer", "feat_in": 80, "code_dim": 16,
                      "num_books": args.books, "num_classes": args.classes, "dist_fn": "l2", "freeze": True,
                      "squeeze_single": False, "combine_time_steps": 8},
        "encoder": {"_target_": target + "modules.ConformerEncoder", "feat_in": 80, "feat_out": -1, "n_layers": args.layers,
                    "d_model": args.d_model, "use_bias": True, "subsampling": "dw_striding", "subsampling_factor": 8,
                    "subsampling_conv_channels": args.channels, "causal_downsampling": False, "ff_expansion_factor": 4,
                    "self_attention_model": "rel_pos", "n_heads": args.heads, "att_context_size": [-1, -1],
                    "att_context_style": "regular", "xscaling": True, "untie_biases": True, "pos_emb_max_len": 5000,
                    "conv_kernel_size": 9, "conv_norm_type": "batch_norm", "conv_context_size": None, "dropout": args.dropout,
                    "dropout_pre_encoder": args.dropout, "dropout_emb": 0.0, "dropout_att": args.dropout},
        "decoder": {"_target_": target + "modules.MultiSoftmaxDecoder", "feat_in": args.d_model, "num_classes": args.classes,
                    "num_decoders": args.books, "squeeze_single": False, "use_bias": True},
        "loss": {"_target_": target + "losses.MultiMLMLoss", "combine_time_steps": 8, "mask_threshold": 0.8,
                 "num_decoders": args.books, "squeeze_single": False},
        "optim": {"name": "adamw", "lr": 1e-3, "betas": [0.9, 0.98], "weight_decay": 1e-3},
    }


def make_audio(batch, samples, seed):
    """Sum of three sines per clip and white noise; the C++ side makes audio of the same kind and length."""
    rng = np.random.default_rng(seed)
    t = np.arange(samples) / 16000.0
    rows = [sum(0.1 * np.sin(2 * np.pi * f * t) for f in rng.uniform(80, 3000, 3)) + 0.02 * rng.standard_normal(samples)
            for _ in range(batch)]
    return torch.tensor(np.stack(rows), dtype=torch.float32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--d_model", type=int, default=176)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--channels", type=int, default=256)
    parser.add_argument("--classes", type=int, default=1024)
    parser.add_argument("--books", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lock", default="", help="file to flock during each round")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    logging.disable(logging.CRITICAL)
    from nemo.collections.asr.data.ssl_dataset import AudioNoiseBatch
    from nemo.collections.asr.models.ssl_models import EncDecDenoiseMaskedTokenPredModel
    from omegaconf import OmegaConf

    model = EncDecDenoiseMaskedTokenPredModel(cfg=OmegaConf.create(model_config(args)), trainer=None)
    model.train()
    if args.mode == "compile":
        model.encoder = torch.compile(model.encoder, dynamic=False)
    samples = int(args.seconds * 16000)
    audio, noise = make_audio(args.batch, samples, 1), 0.3 * make_audio(args.batch, samples, 2)
    lengths = torch.full((args.batch,), samples, dtype=torch.int64)

    def step():
        batch = AudioNoiseBatch(audio=audio.clone(), audio_len=lengths, noise=noise, noise_len=lengths,
                                noisy_audio=audio + noise, noisy_audio_len=lengths)
        begin = time.perf_counter()
        log_probs, encoded_len, masks, tokens = model.forward(
            input_signal=batch.audio, input_signal_length=batch.audio_len, noise_signal=batch.noise,
            noise_signal_length=batch.noise_len, noisy_input_signal=batch.noisy_audio,
            noisy_input_signal_length=batch.noisy_audio_len, apply_mask=True)
        loss = model.loss(masks=masks, decoder_outputs=log_probs, targets=tokens, decoder_lengths=encoded_len)
        loss.backward()
        elapsed = time.perf_counter() - begin
        for parameter in model.parameters():
            parameter.grad = None
        return elapsed * 1e3, float(loss)

    base_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = os.fdopen(real_stdout, "w", buffering=1)
    print(json.dumps({"ready": True, "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad)}), file=answer)
    for line in sys.stdin:
        results = [step() for _ in range(int(line))]
        print(json.dumps({"ms": [r[0] for r in results], "loss": results[-1][1],
                          "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                          "base_mib": base_kb / 1024}), file=answer)


if __name__ == "__main__":
    main()
