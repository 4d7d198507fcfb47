"""Every pool judged with numbers, one chosen, every reason kept."""
