"""The model that Megatron-LM's arguments describe by its sizes."""
from __future__ import annotations

from .messages import as_text
from .models import ModelBySizes
from .stored import StoredValues
from .target import GOES_BEFORE, MOST_RANKS

_MOST = 10 ** 9
# Tokenizers whose number of words is the same everywhere.
_WORDS = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000}
_OF_MODEL = (
    "num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "kv-channels", "group-query-attention",
    "num-query-groups", "max-position-embeddings", "position-embedding-type", "use-rotary-position-embeddings",
    "rotary-base", "use-rope-scaling", "rope-scaling-factor", "normalization", "norm-epsilon", "layernorm-epsilon",
    "swiglu", "untie-embeddings-and-output-weights", "disable-bias-linear", "add-qkv-bias", "qk-layernorm",
    "vocab-size", "padded-vocab-size", "make-vocab-size-divisible-by", "tokenizer-type", "init-method-std",
    "attention-dropout", "hidden-dropout", "num-experts", "moe-router-topk", "moe-ffn-hidden-size",
    "moe-aux-loss-coeff", "moe-router-load-balancing-type", "moe-router-pre-softmax", "spec")


def read_model(values: StoredValues) -> None:
    """Sets the model unless the command line gives it, and the sequence. Raises UsageError for one not done here."""
    target = values.target
    if target.given("model"):
        values.note(f"--model{GOES_BEFORE}", *_OF_MODEL)
    else:
        _refuse_other_models(values)
        model = _model_of(values)
        if model.why_not():
            target.refuse("the model", f"has {model.why_not()}, which is not done here")
        target.set("model", model.config_json())
        target.model_sizes = model.sizes
        target.detail(f"model: --model {target.value('model')}")
        values.note("a size of --model", *_OF_MODEL)
        if model.initializer_range > 0:
            target.differs("init-method-std: output layers of attention and of the MLP begin with it here, in "
                           "Megatron-LM smaller by the root of twice the layers")
    values.state_balanced_experts("moe-router-force-load-balancing")
    if values.has("seq-length"):
        values.state("seq-length", "sequence", values.whole("seq-length", 0, 1, _MOST))


def _refuse_other_models(values: StoredValues) -> None:
    """Refuses models that there are not here. Messages say how the file would have to state one that there is."""
    other = ("; models here are decoders with RMSNorm, rotary embedding and SwiGLU. To see one of these sizes: "
             f"{values.target.source.set_option} ")
    if values.has("spec"):
        values.refuse("spec", "names a model made of Python modules, which is not done here")
    norm = values.text("normalization", "LayerNorm")
    if norm.lower() != "rmsnorm":  # in small letters in Megatron-DeepSpeed
        values.refuse("normalization", f"is {norm}{other}normalization=RMSNorm")
    rotary = (values.truth("use-rotary-position-embeddings")
              or values.text("position-embedding-type", "learned_absolute") == "rope")
    if not rotary:
        values.refuse("position-embedding-type", f"is not rope{other}position-embedding-type=rope")
    for name in ("swiglu", "disable-bias-linear"):
        if not values.truth(name):
            values.refuse(name, f"is not given{other}{name}=true")
    for name in ("attention-dropout", "hidden-dropout"):
        dropout = values.number(name, 0.1)
        if dropout != 0:
            values.refuse(name, f"is {as_text(dropout)}: there is no dropout here; {values.target.source.set_option} "
                                f"{name}=0 leaves it out")


def _model_of(values: StoredValues) -> ModelBySizes:
    def size(name: str, fallback: int) -> int:
        return values.whole(name, fallback, 1, _MOST)

    def needed(name: str) -> int:
        if not values.has(name):
            values.refuse(name, "is not given; without it the model has no size "
                                f"({values.target.source.set_option} {name}=N, or --model)")
        return size(name, 0)

    hidden, layers, heads = map(needed, ("hidden-size", "num-layers", "num-attention-heads"))
    # Two thirds of the width without a gate, as a multiple of 64.
    ffn = size("ffn-hidden-size", hidden * 4 * 2 // 3 // 64 * 64)
    balancing = "none"
    if values.has("num-experts"):
        balancing = values.choice("moe-router-load-balancing-type", "aux_loss", ("aux_loss", "none"))
    return ModelBySizes(
        hidden, layers, heads, size("num-query-groups", 1) if values.truth("group-query-attention") else heads,
        size("kv-channels", hidden // heads), ffn, _vocabulary(values),
        size("max-position-embeddings", size("seq-length", 2048)), values.number("rotary-base", 10000),
        tied=not values.truth("untie-embeddings-and-output-weights"), qk_norm=values.truth("qk-layernorm"),
        qkv_bias=values.truth("add-qkv-bias"),
        norm_epsilon=values.number("layernorm-epsilon" if values.has("layernorm-epsilon") else "norm-epsilon", 1e-5),
        initializer_range=values.number("init-method-std", 0.02),
        rope_factor=values.number("rope-scaling-factor", 8) if values.truth("use-rope-scaling") else 0.0,
        experts=values.whole("num-experts", 0, 1, MOST_RANKS),
        choices=values.whole("moe-router-topk", 2, 1, MOST_RANKS), expert_ffn=size("moe-ffn-hidden-size", ffn),
        # The weights of the choices alone, unless the probabilities come first.
        normalized_choices=not values.truth("moe-router-pre-softmax"),
        balance=values.number("moe-aux-loss-coeff", 0) if balancing == "aux_loss" else 0.0)


def _vocabulary(values: StoredValues) -> int:
    """The words as Megatron-LM pads them, so that ranks of tensor parallelism have equal parts."""
    if values.has("padded-vocab-size"):
        return values.whole("padded-vocab-size", 0, 1, _MOST)
    tokenizer = values.text("tokenizer-type", "")
    words = values.whole("vocab-size", _WORDS.get(tokenizer, 0), 1, _MOST)
    if words == 0:
        values.refuse("vocab-size", "is not given, and a tokenizer's words are not known here; give "
                                    f"{values.target.source.set_option} vocab-size=N, or --model")
    words += tokenizer == "NullTokenizer"  # its end of a document
    multiple = (values.whole("make-vocab-size-divisible-by", 128, 1, _MOST // MOST_RANKS)
                * values.whole("tensor-model-parallel-size", 1, 1, MOST_RANKS))
    return -(-words // multiple) * multiple
