"""What ``oneop bench`` runs: an operator in every runtime, compared with its reference, then timed."""
