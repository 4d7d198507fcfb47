"""What a model is: its shape from config.json, its bytes from safetensors headers.

In reading order:

- `model`, with `mixer_kinds` and `feed_forward_kinds`: what a model is made of. A `ModelShape` is a
  stack of decoder layers; each has mixers and feed-forward blocks, and layers that are alike are
  described once.
- `config`: from config.json to the shape. `fields` reads values that may all be wrong, `context`
  how long a request may be.
- `decoder`: the stack of layers. Most families use the same words: `layers` (what each layer
  attends to), `mixers` and `attention`, `feed_forwards` and `expert_layers`, `drafts`. Families
  with words of their own are listed in `dialects`; their readers are `state_space`,
  `linear_hybrids`, `nemotron`, `deepseek_v4`, `minimax_m3` and `glm5_next`; all hand over `blocks`.
- `rope`: tables of positions. `towers`: encoders of images and sound, by family in
  `vision_towers`, `unusual_towers` and `audio_towers`, built of `encoders`.
- `quantization`: how linear layers are stored. `module_rules` has the words of each method for
  which layers are stored how, `weight_schemes` for one scheme, `module_formats` the result;
  `module_names`, `layer_globs` and `regex_globs` tell which layers a name or pattern speaks of.
- `safetensors` and `stored_tensors`: headers, indexes and tables of tensors. `stored_formats`: what
  the tensors tell of the layers.
- Sources: `facts` (inline and ConfigMaps), `hub` with `hub_session` (where the client may be led),
  `hub_files`, `hub_headers`, `hub_cache` and `hub_errors`, behind `lookup`; `inspection` and
  `read_volume` (the Job that reads a volume).
"""
