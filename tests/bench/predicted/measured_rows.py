"""The rows of rows.csv, and what `consist predict` says of one."""
import csv
import json
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FORMS = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}
# Presets of which rows have some layers: type, hidden, ffn, heads, heads of keys, vocabulary, positions.
SIZES = {
    "qwen3-1.7b": ("qwen3", 2048, 6144, 16, 8, 151936, 40960),
    "qwen3-8b": ("qwen3", 4096, 12288, 32, 8, 151936, 40960),
    "llama-3.1-8b": ("llama", 4096, 14336, 32, 8, 128256, 131072),
    "qwen3-30b-a3b": ("qwen3_moe", 2048, 6144, 32, 4, 151936, 40960),
}


def read_rows():
    with open(HERE / "rows.csv", newline="") as file:
        return list(csv.DictReader(file))


def shipped_machine(row):
    """The machine that ships for the GPUs of the row."""
    return row["machine"].split("-")[0]


def value_of(options, name, default):
    return options[options.index(name) + 1] if name in options else default


def write_model(model, layers, folder):
    """A folder with the config.json of some layers of a preset."""
    kind, hidden, ffn, heads, key_heads, vocabulary, positions = SIZES[model]
    config = {"architectures": [FORMS[kind]], "model_type": kind, "hidden_size": hidden, "intermediate_size": ffn, "num_attention_heads": heads,
              "num_key_value_heads": key_heads, "head_dim": 128, "num_hidden_layers": layers, "vocab_size": vocabulary,
              "max_position_embeddings": positions, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "hidden_act": "silu",
              "tie_word_embeddings": model == "qwen3-1.7b", "attention_bias": False}
    if kind == "qwen3_moe":
        config.update(num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=True, decoder_sparse_step=1,
                      mlp_only_layers=[], router_aux_loss_coef=0.001, output_router_logits=True)
    (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))


def prediction_of(consist, row, machine):
    """What predict --json says. Rows that name no transport were measured over nvlink."""
    options = row["options"].split()
    with tempfile.TemporaryDirectory() as folder:
        if row["layers"]:
            model = options.index("--model") + 1
            write_model(options[model], int(row["layers"]), folder)
            options[model] = folder + "/"
            options.append("--from-scratch")
        if "--transport" not in options:
            options += ["--transport", "nvlink"]
        command = [str(pathlib.Path(consist).resolve()), "predict", "--json", "--machine", machine] + options
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    begin = done.stdout.find("{")
    if begin < 0:
        raise SystemExit(f"{row['options']}: predict failed:\n{done.stderr}")
    return json.loads(done.stdout[begin:])
