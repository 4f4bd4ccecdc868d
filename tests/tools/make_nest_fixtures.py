"""make_nest_fixtures.py OUT [NAME ...]: fixtures of NeMo's EncDecDenoiseMaskedTokenPredModel at other sizes than the one given.

Run in the peers' environment (NeMo 3.0.0, torch 2.13.0). Each folder holds config.yaml, weights, batch and expected as safetensors:
one training-mode forward and backward on a fixed mask, and the losses of five AdamW steps (lr 1e-3, betas 0.9/0.98, decay 1e-3).
"""
import copy
import logging
import os
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
import numpy as np  # noqa: E402
import torch  # noqa: E402
import yaml  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

ASR = "nemo.collections.asr."


def base():
    return {
        "sample_rate": 16000, "num_classes": 48, "num_books": 1, "code_dim": 16, "squeeze_single": False,
        "mask_position": "pre_conv", "train_ds": None, "validation_ds": None,
        "preprocessor": {"_target_": ASR + "modules.AudioToMelSpectrogramPreprocessor", "sample_rate": 16000,
                         "normalize": "per_feature", "window_size": 0.025, "window_stride": 0.01, "window": "hann",
                         "features": 80, "n_fft": 512, "log": True, "frame_splicing": 1, "dither": 0.0, "pad_to": 16,
                         "pad_value": 0.0},
        "spec_augment": {"_target_": ASR + "modules.SpectrogramAugmentation", "freq_masks": 0, "time_masks": 0, "freq_width": 27,
                         "time_width": 0.05},
        "masking": {"_target_": ASR + "modules.RandomBlockMasking", "block_size": 24, "mask_prob": 0.03, "feat_in": 80,
                    "freeze": True, "allow_overlap": True},
        "quantizer": {"_target_": ASR + "modules.RandomProjectionVectorQuantizer", "feat_in": 80, "code_dim": 16, "num_books": 1,
                      "num_classes": 48, "dist_fn": "l2", "freeze": True, "squeeze_single": False, "combine_time_steps": 8},
        "encoder": {"_target_": ASR + "modules.ConformerEncoder", "feat_in": 80, "feat_out": -1, "n_layers": 2, "d_model": 24,
                    "use_bias": True, "subsampling": "dw_striding", "subsampling_factor": 8, "subsampling_conv_channels": 16,
                    "causal_downsampling": False, "ff_expansion_factor": 4, "self_attention_model": "rel_pos", "n_heads": 4,
                    "att_context_size": [-1, -1], "att_context_style": "regular", "xscaling": True, "untie_biases": True,
                    "pos_emb_max_len": 5000, "conv_kernel_size": 9, "conv_norm_type": "batch_norm", "conv_context_size": None,
                    "dropout": 0.0, "dropout_pre_encoder": 0.0, "dropout_emb": 0.0, "dropout_att": 0.0},
        "decoder": {"_target_": ASR + "modules.MultiSoftmaxDecoder", "feat_in": 24, "num_classes": 48, "num_decoders": 1,
                    "squeeze_single": False, "use_bias": True},
        "loss": {"_target_": ASR + "losses.MultiMLMLoss", "combine_time_steps": 8, "mask_threshold": 0.8, "num_decoders": 1,
                 "squeeze_single": False},
    }


def books_no_bias(c):
    c["num_books"] = c["quantizer"]["num_books"] = c["decoder"]["num_decoders"] = c["loss"]["num_decoders"] = 3
    c["encoder"].update(use_bias=False, xscaling=False, conv_kernel_size=5, n_heads=2)
    c["decoder"]["use_bias"] = False


def post_conv(c):
    c["mask_position"] = "post_conv"
    c["quantizer"]["combine_time_steps"] = 1
    c["masking"].update(mask_prob=0.2)


def odd_sizes(c):
    c["encoder"].update(d_model=36, n_heads=3, subsampling_conv_channels=20, n_layers=1, conv_kernel_size=31, ff_expansion_factor=2,
                        feat_in=64)
    c["preprocessor"].update(features=64, window="hamming", window_size=0.02, n_fft=None)
    c["quantizer"].update(feat_in=64, code_dim=8)
    c["code_dim"] = 8
    c["masking"].update(feat_in=64, allow_overlap=False, mask_prob=0.4, block_size=16)
    c["decoder"]["feat_in"] = 36


def factor_four(c):
    c["encoder"].update(subsampling_factor=4, subsampling_conv_channels=24, att_context_size=[12, 5], conv_context_size="causal")
    c["quantizer"]["combine_time_steps"] = c["loss"]["combine_time_steps"] = 4
    c["squeeze_single"] = c["quantizer"]["squeeze_single"] = c["decoder"]["squeeze_single"] = c["loss"]["squeeze_single"] = True


def factor_two_projected(c):
    c["encoder"].update(subsampling_factor=2, subsampling_conv_channels=-1, feat_out=40, n_layers=1)
    c["decoder"]["feat_in"] = 40
    c["quantizer"]["combine_time_steps"] = c["loss"]["combine_time_steps"] = 2
    c["preprocessor"].update(normalize="all_features", pad_value=-0.25)
    c["masking"].update(freeze=False)


VARIANTS = {f.__name__: f for f in [books_no_bias, post_conv, odd_sizes, factor_four, factor_two_projected]}


def make_batch(seed):
    rng = np.random.default_rng(seed)
    lengths = [20480, 14333, 5123]
    audio = np.zeros((3, max(lengths)), np.float32)
    noise = np.zeros_like(audio)
    for i, n in enumerate(lengths):
        t = np.arange(n) / 16000.0
        envelope = 0.5 + 0.5 * np.sin(2 * np.pi * rng.uniform(2, 5) * t)
        audio[i, :n] = envelope * sum(0.1 * np.sin(2 * np.pi * f * t + rng.uniform(0, 6)) for f in rng.uniform(90, 3500, 6))
        audio[i, :n] += 0.003 * rng.standard_normal(n)
        noise[i, :n] = 0.02 * rng.standard_normal(n)
    lengths = torch.tensor(lengths)
    return torch.tensor(audio), torch.tensor(audio + noise), lengths


def make(name, out):
    from nemo.collections.asr.models.ssl_models import EncDecDenoiseMaskedTokenPredModel
    from omegaconf import OmegaConf

    torch.manual_seed(7)
    torch.set_num_threads(1)
    config = base()
    VARIANTS[name](config)
    model = EncDecDenoiseMaskedTokenPredModel(cfg=OmegaConf.create(copy.deepcopy(config)), trainer=None)
    model.train()
    with torch.no_grad():  # position biases, norms and running statistics at values that matter
        for key, value in model.named_parameters():
            if "pos_bias" in key or "norm" in key:
                value.add_(0.1 * torch.randn_like(value))
    weights = {k: v.detach().clone().contiguous() for k, v in model.state_dict().items()}
    audio, noisy, lengths = make_batch(11)

    if config["mask_position"] == "post_conv":
        # NeMo 3.0.0 hands the clean features to the sub-sampling as [B, F, T], which cannot run (it wants [B, T, F]): transposed here.
        subsample, features = model.pre_encoder.pre_encode.forward, config["preprocessor"]["features"]
        model.pre_encoder.pre_encode.forward = lambda x, lengths: subsample(
            x=x if x.shape[2] == features else x.transpose(1, 2), lengths=lengths)

    captured = {}
    masking = model.mask_processor.forward

    def fixed_mask(input_feats, input_lengths):
        if "mask" not in captured:
            captured["mask"] = masking(input_feats=input_feats, input_lengths=input_lengths)[1].detach().clone()
        m = captured["mask"]
        return torch.where(m > 0, model.mask_processor.mask_embedding.view(1, -1, 1), input_feats), m

    model.mask_processor.forward = fixed_mask

    def forward():
        clean, _ = model.preprocessor(input_signal=audio.clone(), length=lengths)
        noisy_features, frames = model.preprocessor(input_signal=noisy.clone(), length=lengths)
        encoded = {}
        hook = model.encoder.register_forward_hook(lambda _, __, o: encoded.update(x=o[0], n=o[1]))
        log_probs, _, masks, tokens = model.forward(input_signal=audio.clone(), input_signal_length=lengths,
                                                    noisy_input_signal=noisy.clone(), noisy_input_signal_length=lengths, apply_mask=True)
        hook.remove()
        loss = model.loss(masks=masks, decoder_outputs=log_probs, targets=tokens, decoder_lengths=encoded["n"])
        return loss, {"clean_features": clean, "noisy_features": noisy_features, "feature_lengths": frames, "tokens": tokens,
                      "encoded": encoded["x"], "encoded_lengths": encoded["n"], "log_probs": log_probs}

    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, betas=(0.9, 0.98), weight_decay=1e-3)
    losses = []
    for step in range(5):
        optimizer.zero_grad(set_to_none=True)
        loss, outputs = forward()
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            expected = {k: v.detach().clone().contiguous() for k, v in outputs.items()}
            for key, value in model.named_parameters():
                if value.grad is not None:
                    expected["grad." + key] = value.grad.clone().contiguous()
        optimizer.step()
    expected["losses"] = torch.tensor(losses, dtype=torch.float64)
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.yaml"), "w") as f:
        yaml.safe_dump({"model": config}, f, sort_keys=False)
    save_file(weights, os.path.join(folder, "weights.safetensors"))
    save_file({"audio": audio, "audio_lengths": lengths, "noisy_audio": noisy, "noisy_audio_lengths": lengths.clone(),
               "mask": captured["mask"].contiguous()}, os.path.join(folder, "batch.safetensors"))
    save_file(expected, os.path.join(folder, "expected.safetensors"))
    print(name, "losses", losses, "masked", float(captured["mask"].mean()))


if __name__ == "__main__":
    for variant in sys.argv[2:] or VARIANTS:
        make(variant, sys.argv[1])
