"""What ``oneop check`` runs: cases made from a definition, properties that must hold for them, and what failed."""
