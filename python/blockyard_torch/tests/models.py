"""Models: what the check trains. Each is (module, function from a step's number to its loss)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY = 50304


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.split, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.split(self.before(x)).chunk(3, dim=-1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.join(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(F.gelu(self.wide(self.between(x))))


class Transformer(nn.Module):
    def __init__(self, layers, width, heads):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def lengths(step, longest):
    """A length for each step, the same in every run: what fragments a cache."""
    return longest // 8 + (step * 7919 + 331) % (longest - longest // 8)


def language(layers, width, heads, batch, longest, varying):
    model = Transformer(layers, width, heads).cuda()

    def loss(step):
        length = lengths(step, longest) if varying else longest
        tokens = torch.zeros(batch, length, dtype=torch.long, device="cuda")
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    return model, loss


def image(name, batch, varying):
    import torchvision

    model = getattr(torchvision.models, name)(weights=None).cuda()

    def loss(step):
        side = 160 + 32 * (step * 5 % 5) if varying else 224
        images = torch.empty(batch, 3, side, side, device="cuda")
        return F.cross_entropy(model(images), torch.zeros(batch, dtype=torch.long, device="cuda"))

    return model, loss


def hugging(name, batch, longest, varying):
    import transformers as t

    config = {
        "gpt2": lambda: t.GPT2Config(),
        "bert": lambda: t.BertConfig(),
        "llama": lambda: t.LlamaConfig(
            hidden_size=1024, intermediate_size=2816, num_hidden_layers=16, num_attention_heads=16,
            num_key_value_heads=8, vocab_size=32000,
        ),
    }[name]()
    kind = t.BertForMaskedLM if name == "bert" else t.AutoModelForCausalLM.from_config
    model = kind(config).cuda()
    longest = min(longest, config.max_position_embeddings)

    def loss(step):
        length = lengths(step, longest) if varying else longest
        tokens = torch.zeros(batch, length, dtype=torch.long, device="cuda")
        return model(input_ids=tokens, labels=tokens).loss

    return model, loss


MODELS = {
    "transformer-small": lambda: language(6, 384, 6, 8, 1024, False),
    "transformer-small, varying": lambda: language(6, 384, 6, 8, 1024, True),
    "transformer-medium, varying": lambda: language(12, 768, 12, 8, 1024, True),
    "resnet50": lambda: image("resnet50", 32, False),
    "resnet50, varying": lambda: image("resnet50", 32, True),
    "vit_b_16": lambda: image("vit_b_16", 32, False),
    "efficientnet_b0": lambda: image("efficientnet_b0", 32, False),
    "gpt2 (transformers), varying": lambda: hugging("gpt2", 8, 1024, True),
    "bert (transformers), varying": lambda: hugging("bert", 16, 512, True),
    "llama (transformers), varying": lambda: hugging("llama", 4, 1024, True),
}


def train(name, steps):
    """Trains for so many steps; returns how many were done."""
    model, loss = MODELS[name]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(steps):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            value = loss(step)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return steps
