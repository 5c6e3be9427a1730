"""A run on disk: plan, folder, checkpoints, record, policy files, and the trainer made from them."""
