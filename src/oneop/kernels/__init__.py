"""Native kernels: the generated header and glue, and the libraries built from them."""
