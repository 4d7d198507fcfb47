"""Does it fit on n devices of this kind? Bytes, term by term, and which degrees are legal.

In reading order:

- `model`: what goes in (`EngineOptions`, `Parallelism`) and comes out (`FitVerdict`). `options`: a
  spec's options; `context`: how many tokens a request may have.
- `memory`: the sum, and the verdict. Its terms, each a function of its own: `budget`, `weights`,
  `workspaces`, `activation`, `non_torch`, `graphs`; `batch` plans the step they depend on,
  `uncertainty` says how far the sum may be off, `degrees` looks up figures by number of GPUs,
  `corrections` are what real starts have taught beyond all of them; `measured` draws them from a
  KV cache, `correction_entries` reads and writes them.
- Weights: `tensors` lists the matrices that a rank holds, `matrix` says what one is. The matrices
  of a block are in `mixer_tensors` (attention), `linear_attention_tensors`, `state_space_tensors`,
  `compressed_attention_tensors` and `feed_forward_tensors`. `precision`: what a matrix costs as it
  is stored. `weight_correction`: what the files tell beyond the config.
- KV cache: `kv_plan` from blocks to tokens. `kv_layers`: the caches of each layer (`kv_specs`,
  `kv_settings`, `kv_compressed`, `mixer_states`); `kv_groups` and `kv_packing`: how they share
  blocks.
- Activation: `layer_peak`, `sampling` and `encoding` are what `activation` takes the largest of.
- Legality: `parallelism`, with `layer_splits` and `quantization_splits`; a `Layout` (`layout`) is
  what they judge. Compatibility: `compatibility` applies the catalogue's rules, `rule_matching`
  says whether one speaks of a model.
- Questions: `question` puts one, `limits` how far memory reaches (by `bisection`), `advice` what to
  change.
"""
