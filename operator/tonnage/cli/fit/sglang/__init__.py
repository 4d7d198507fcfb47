"""The part of a question that SGLang itself defines: its flags."""
