"""The sequence VAE as a practitioner writes it in PyTorch: nn.TransformerEncoder for both halves, or nn.LSTM.

Parameter names equal redline's (src/models/sequence_vae), so weights travel both ways. The LSTM follows the published formulas of
jxhe/vae-lagging-encoder (z appended to every decoder input, c0 = W z, h0 = tanh(c0), no biases in the linear layers), written anew.
Sequences carry start and end symbols; the decoder sees tokens[:-1] and predicts tokens[1:]; padding is masked by true length.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn


def sinusoid(length, width):
    position = torch.arange(length, dtype=torch.float64)[:, None]
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    table = torch.zeros(length, width, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)[:, : width // 2]
    return table.float()


def make_layers(width, heads, hidden, layers, dropout, activation="gelu"):
    layer = nn.TransformerEncoderLayer(width, heads, hidden, dropout, activation, batch_first=True, norm_first=True)
    return nn.ModuleList([layer] + [nn.TransformerEncoderLayer(width, heads, hidden, dropout, activation, batch_first=True, norm_first=True)
                                    for _ in range(layers - 1)])


class TransformerEncoder(nn.Module):
    def __init__(self, vocab_size, d_model, heads, layers, hidden, latent, dropout, max_length):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, d_model)
        self.layers = make_layers(d_model, heads, hidden, layers, dropout)
        self.norm = nn.LayerNorm(d_model)
        self.linear = nn.Linear(d_model, 2 * latent)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("position", sinusoid(max_length, d_model), persistent=False)
        self.scale = math.sqrt(d_model)

    def forward(self, tokens, lengths):
        x = self.drop(self.embed(tokens) * self.scale + self.position[: tokens.size(1)])
        padding = torch.arange(tokens.size(1), device=tokens.device)[None, :] >= lengths[:, None]
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        last = x[torch.arange(x.size(0)), lengths - 1]  # the true last step
        return self.linear(self.norm(last)).chunk(2, -1)


class TransformerDecoder(nn.Module):
    def __init__(self, vocab_size, d_model, heads, layers, hidden, latent, dropout, max_length):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, d_model)
        self.trans_linear = nn.Linear(latent, d_model, bias=False)
        self.layers = make_layers(d_model, heads, hidden, layers, dropout)
        self.norm = nn.LayerNorm(d_model)
        self.pred_linear = nn.Linear(d_model, vocab_size, bias=False)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("position", sinusoid(max_length, d_model), persistent=False)
        self.scale = math.sqrt(d_model)

    def forward(self, tokens, z):
        x = self.embed(tokens) * self.scale + self.position[: tokens.size(1)] + self.trans_linear(z)[:, None, :]
        x = self.drop(x)
        causal = nn.Transformer.generate_square_subsequent_mask(tokens.size(1), device=tokens.device)
        for layer in self.layers:
            x = layer(x, src_mask=causal, is_causal=True)  # padding is on the right: a causal mask already hides it
        return self.pred_linear(self.norm(x))


class LstmEncoder(nn.Module):
    def __init__(self, vocab_size, embed, hidden, latent):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, embed)
        self.lstm = nn.LSTM(embed, hidden, batch_first=True)
        self.linear = nn.Linear(hidden, 2 * latent, bias=False)

    def forward(self, tokens, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(tokens), lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, (last, _) = self.lstm(packed)
        return self.linear(last[0]).chunk(2, -1)


class LstmDecoder(nn.Module):
    def __init__(self, vocab_size, embed, hidden, latent, dropout_in, dropout_out):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, embed)
        self.dropout_in = nn.Dropout(dropout_in)
        self.dropout_out = nn.Dropout(dropout_out)
        self.trans_linear = nn.Linear(latent, hidden, bias=False)
        self.lstm = nn.LSTM(embed + latent, hidden, batch_first=True)
        self.pred_linear = nn.Linear(hidden, vocab_size, bias=False)

    def forward(self, tokens, z):
        x = self.dropout_in(self.embed(tokens))
        x = torch.cat([x, z[:, None, :].expand(-1, x.size(1), -1)], -1)
        c0 = self.trans_linear(z)[None]
        y, _ = self.lstm(x, (torch.tanh(c0), c0))
        return self.pred_linear(self.dropout_out(y))


class SequenceVae(nn.Module):
    def __init__(self, kind="transformer", vocab_size=1000, d_model=256, heads=8, layers=4, hidden=1024, latent=32, dropout=0.1,
                 max_length=1000, embed=64, lstm_hidden=128, dropout_in=0.5, dropout_out=0.5):
        super().__init__()
        if kind == "transformer":
            self.encoder = TransformerEncoder(vocab_size, d_model, heads, layers, hidden, latent, dropout, max_length)
            self.decoder = TransformerDecoder(vocab_size, d_model, heads, layers, hidden, latent, dropout, max_length)
            for part in (self.encoder, self.decoder):
                nn.init.normal_(part.embed.weight, std=d_model**-0.5)
        else:
            self.encoder = LstmEncoder(vocab_size, embed, lstm_hidden, latent)
            self.decoder = LstmDecoder(vocab_size, embed, lstm_hidden, latent, dropout_in, dropout_out)
            for p in self.parameters():
                nn.init.uniform_(p, -0.01, 0.01)
            for part in (self.encoder, self.decoder):
                nn.init.uniform_(part.embed.weight, -0.1, 0.1)

    def forward(self, tokens, lengths, noise=None, beta=1.0):
        mu, logvar = self.encoder(tokens, lengths)
        noise = torch.randn_like(mu) if noise is None else noise
        z = mu + torch.exp(0.5 * logvar) * noise
        logits = self.decoder(tokens[:, :-1], z)
        target = tokens[:, 1:]
        real = torch.arange(target.size(1), device=tokens.device)[None, :] < (lengths - 1)[:, None]
        nll = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view_as(target)
        reconstruction = (nll * real).sum(1)
        kl = 0.5 * (mu**2 + logvar.exp() - logvar - 1)
        loss = (reconstruction + beta * kl.sum(1)).mean()
        return {"loss": loss, "reconstruction": reconstruction, "kl": kl, "mu": mu, "logvar": logvar, "z": z}
