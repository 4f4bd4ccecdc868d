"""NeMo's NEST pre-training as the peer of `redline train`: NeMo's model, data set, augmentation and collation, the plainest PyTorch loop around them.

No Lightning, logging, validation or checkpoints: less work than a real NeMo run does. Serves rounds on stdin/stdout: a line "N" trains on the
next N clips (the loader runs on over epochs) and answers with one JSON line. Run inside the peers' environment (NeMo 3.0.0, torch 2.13.0).
"""
import argparse
import json
import logging
import os
import resource
import sys
import time

import nemo_step  # moves stdout away from NeMo's prints
import torch

AUGMENTOR = {"_target_": "nemo.collections.asr.modules.ssl_modules.MultiSpeakerNoiseAugmentation", "prob": 0.5, "noise_ratio": 0.5,
             "min_r_speech": -5.0, "max_r_speech": 5.0, "min_r_noise": -5.0, "max_r_noise": 20.0, "min_mix_rate": 0.5, "max_mix_rate": 0.5,
             "min_num_segments": 1, "max_num_segments": 1, "min_num_speakers": 1, "max_num_speakers": 1}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--manifest", required=True)
    parser.add_argument("--noise", required=True)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--precision", choices=["32", "bf16"], default="32")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def batches(model):
    while True:
        yield from model._train_dl


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    logging.disable(logging.CRITICAL)
    from nemo.collections.asr.models.ssl_models import EncDecDenoiseMaskedTokenPredModel
    from omegaconf import OmegaConf

    sizes = argparse.Namespace(classes=1024, books=1, layers=4, d_model=176, channels=256, heads=4, dropout=0.1)
    model = EncDecDenoiseMaskedTokenPredModel(cfg=OmegaConf.create(nemo_step.model_config(sizes)), trainer=None)
    model.setup_training_data(OmegaConf.create({
        "manifest_filepath": args.manifest, "noise_manifest": args.noise, "sample_rate": 16000, "batch_size": args.batch, "shuffle": True,
        "num_workers": args.workers, "pin_memory": False, "max_duration": 60.0, "min_duration": 1.0, "drop_last": True, "is_concat": False,
        "is_tarred": False, "batch_augmentor": AUGMENTOR}))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), weight_decay=0.0)
    source = batches(model)
    answer = os.fdopen(nemo_step.real_stdout, "w", buffering=1)
    base_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"ready": True, "clips": len(model._train_dl.dataset)}), file=answer)
    for line in sys.stdin:
        wanted, samples, audio_seconds, loss = int(line), 0, 0.0, None
        begin = time.perf_counter()
        while samples < wanted:
            for _ in range(args.accumulate):
                batch = next(source)
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16"):
                    log_probs, encoded_len, masks, tokens = model.forward(
                        input_signal=batch.audio, input_signal_length=batch.audio_len, noise_signal=batch.noise,
                        noise_signal_length=batch.noise_len, noisy_input_signal=batch.noisy_audio,
                        noisy_input_signal_length=batch.noisy_audio_len, apply_mask=True)
                    loss = model.loss(masks=masks, decoder_outputs=log_probs, targets=tokens, decoder_lengths=encoded_len)
                (loss / args.accumulate).backward()
                samples += batch.audio.shape[0]
                audio_seconds += float(batch.audio_len.sum()) / 16000.0
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - begin
        print(json.dumps({"samples_per_second": samples / seconds, "audio_seconds_per_second": audio_seconds / seconds, "samples": samples,
                          "seconds": seconds, "loss": float(loss.detach()),
                          "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "base_mib": base_mib}), file=answer)


if __name__ == "__main__":
    main()
