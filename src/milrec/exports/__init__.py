"""Exports: what a model gives to other tools, as arrays, as factors with ids, and as an ONNX file."""
