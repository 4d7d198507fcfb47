"""Accelerators, prices, images, engine releases and compatibility rules.

Data files with a source and a date (`data/`), and their loaders; adding an accelerator is a data
change. `load` builds the Catalog (`catalog`) from accelerators (`model`), their partitions
(`partitioning`), clouds' node labels (`cloud_labels`), networks between nodes (`interconnects`),
drivers that publish GPUs in ResourceSlices (`dra_drivers`), `prices` and compatibility `rules`;
`schema` checks each file and `data_files` reads it. `accelerator_names` are the names that users
know. `vllm` has the data about vLLM, `sglang` those about the memory of SGLang, `sglang_arguments`
and `sglang_server` about its arguments and images, `engine_choice` the rules that choose between
them, `models` the data about models.
"""
