"""What the world is like: accelerators, prices, images, engine versions, compatibility rules.

Data files with a source and a date (`data/`), and their loaders; adding an accelerator is a data
change. `load` reads what makes up the Catalog (`catalog`): accelerators (`model`), how they can be
divided (`partitioning`) and what clouds' nodes say of them (`cloud_labels`), vLLM's `images` and
releases (`engine`, `profiling`), model classes and families (`architectures`, `families`), methods
and rules (`quantization_methods`, `rules`), each checked by its `schema`. What only one formula
asks for is loaded on its own: `config_defaults` (what a config leaves out), `kv_cache`, `formats`
(how kernels lay out weights), `splits` (what vLLM refuses), `encoders`, `gguf` and
`release_dates`. All are read by `data_files`.
"""
