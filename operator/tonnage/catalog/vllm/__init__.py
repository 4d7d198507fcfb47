"""Data about vLLM: releases, flags, images, kernels' layouts and the memory that it measures."""
