"""The memory of each engine, behind one interface.

`vllm` and `sglang` implement `fit.questions.question.MemoryModel`; `registry` has the engines that
a spec can name.
"""
