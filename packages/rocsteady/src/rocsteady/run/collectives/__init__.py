"""What ranks say about their collectives: PyTorch's flight recorder, RCCL's RAS service."""
