"""Reading Hugging Face config.json files, one module a family of architectures."""

from meshwright.model.huggingface.read import known_types, read_config

__all__ = ["known_types", "read_config"]
