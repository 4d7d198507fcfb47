"""Whether a model fits on n GPUs of one kind, in bytes per term, and which parallelisms are legal.

In reading order:

- `model`: the input (`EngineOptions`, `Parallelism`) and the output (`FitVerdict`). `options`: a
  spec's options, by `flag_values` also those of its extra arguments; `context`: how many tokens a
  request may have; `layout`: a model with its parallelism and release.
- `memory`: the sum and the verdict. Each term has its function: `budget`, `weights`, `lora`,
  `kv_cache`, `activation`, `non_torch`. `batch` plans the step that they depend on, `degrees` looks
  up figures by number of GPUs.
- `sglang`: the memory under SGLang, by its own rules.
- `legality`: the parallelisms and combinations that vLLM accepts.
- `calibration`: the bytes that real starts took in addition, and the error of the sum.
- `engines`: each engine's answers, behind one interface.
- `questions`: does it fit, how much fits (by `bisection`), and what would make it fit.
- `messages`: counts, sizes and parallelisms as text.
"""
