"""Read what a model is: its shape from config.json, its bytes from safetensors headers.

In reading order:

- `model`, `mixer_kinds` and `feed_forward_kinds`: the data. A `ModelShape` is a stack of decoder
  layers; each has mixers and feed-forward blocks. Equal layers are described once.
- `shape` parses config.json into a shape; `fields` validates each value. `decoder` reads the stack
  of layers, `mtp` the multi-token prediction layers after it.
- `config`: readers of the fields that most families share. `families`: readers of families with
  field names of their own, listed in `families.adapters`.
- `adapter`: LoRA adapters.
- `encoders`: vision and audio encoders, by family.
- `quantization`: the storage format of each linear layer.
- `safetensors` and `tensor_table`: headers, indexes and tables of tensors.
- Sources: `facts` (inline and ConfigMaps), `hub` (behind `lookup`), and `volume` (a Job).
  `kept_facts` is what a Hub said, for times when none answers.
"""
