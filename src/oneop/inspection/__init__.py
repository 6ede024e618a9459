"""What an ONNX file needs to run, in each runtime, and the same file rewritten for another one."""
